import type { JobInfo } from "../../../engine/operate/job_info.ts";
import type { Command } from "../../command.ts";
import { countOf } from "../../output/describe.ts";
import { askApi } from "../../service/api.ts";

/** Pauses a job. */
export const pause: Command = {
  name: "pause",
  usage: "JOB [--note TEXT]",
  about: "pause a job: no run of it is claimed any more",
  arity: [1, 1],
  options: { note: { value: "TEXT", about: "why" } },
  async run({ args, service, output }) {
    const [jobName, note] = [args.positionals[0]!, args.text("note")];
    const body = note === undefined ? {} : { note };
    const job = await askApi<JobInfo>(service, "POST", "/jobs/pause", { query: { jobName }, body });
    output.object(job, ({ jobName, paused, byStatus: { running, leased } }) => {
      output.line(`${jobName} is paused since ${paused!.since}`); // it was just paused
      const executed = running + leased;
      if (executed > 0) {
        output.line(`${countOf(executed, "run")} of it ${executed === 1 ? "is" : "are"} still executed`);
      }
    });
    return 0;
  },
};

/** Ends the pause of a job. */
export const resume: Command = {
  name: "resume",
  usage: "JOB",
  about: "end the pause of a job",
  arity: [1, 1],
  options: {},
  async run({ args, service, output }) {
    const jobName = args.positionals[0]!;
    const job = await askApi<JobInfo>(service, "POST", "/jobs/resume", { query: { jobName } });
    output.object(
      job,
      ({ jobName, byStatus: { pending } }) =>
        output.line(`${jobName} is resumed: ${countOf(pending, "run")} ${pending === 1 ? "is" : "are"} pending`),
    );
    return 0;
  },
};
