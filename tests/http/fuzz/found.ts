import type { Command, RequestCommand } from "./command.ts";

/** What was found once, as small as it could be made: what was done first, and then what at once. It is always tried. */
export const found: Record<"atOnce" | "whileExecuting", [Command[], RequestCommand[]][]> = {
  atOnce: [
    // The steps of a run that is deleted meanwhile: there were none, rather than no run.
    [
      [
        { do: "trigger", by: "a", labels: "own", body: { jobName: "fail", input: {} } },
        { do: "work" },
      ],
      [
        { do: "ask", kind: "steps", run: 0, by: "owner" },
        { do: "ask", kind: "delete", run: 0, by: "owner" },
        { do: "trigger", by: "a", labels: "own", body: { jobName: "echo", input: {} } },
      ],
    ],
  ],
  whileExecuting: [
    // A run that is cancelled and deleted while a worker claims it: the worker could not read its input.
    [
      [{ do: "trigger", by: "a", labels: "own", body: { jobName: "echo", input: {} } }],
      [
        { do: "ask", kind: "cancel", run: 0, by: "owner" },
        { do: "ask", kind: "delete", run: 0, by: "owner" },
      ],
    ],
  ],
};
