import type { ClientMessage } from "../../model/message.ts";
import { type Command, UsageError } from "../command.ts";
import { describeInstant } from "../output.ts";
import { toJsonLine } from "../../values/text.ts";
import { askApi, findRunId } from "../service/api.ts";
import { readFilter, readJsonArgument, toQuery } from "../read_options.ts";
import type { OpenWait } from "../../engine/operate/open_waits.ts";
import { createHash } from "node:crypto";
import { NotFoundError } from "../../model/error.ts";

const MAX_PAYLOAD = 80;

/** Lists the messages of a run. */
export const messages: Command = {
  name: "messages",
  usage: "RUN",
  about: "list the messages that were sent to a run, and which it has received",
  async run({ args, service, output }) {
    const runId = await findRunId(service, args.positionals[0]!);
    const list = await askApi(service, "GET /messages", { query: { runId } }) as ClientMessage[]; // what the route sends
    const now = Date.now();
    output.list(list, {
      columns: [
        ["STATUS", ({ status }) => status],
        ["NAME", ({ name }) => name, "cut"],
        ["ID", ({ id }) => id, "cut"],
        ["ACCEPTED", ({ acceptedAt }) => describeInstant(acceptedAt, now)],
        ["SENT BY", ({ sentBy }) => sentBy ?? "", "cut"],
        ["RECEIVED BY", ({ receivedBy }) => receivedBy ?? "", "cut"],
        ["PAYLOAD", ({ payload }) => toJsonLine(payload).slice(0, MAX_PAYLOAD), "cut"],
      ],
      none: "No message was sent to the run",
    });
  },
};

/** Sends a message to a run. */
export const send: Command = {
  name: "send",
  usage: "RUN NAME [JSON|-]",
  about: "send a message with this payload (null) to a run, by a service",
  options: { id: { value: "ID", about: "identifies a repeated message (each call sends another one)" } },
  async run({ args, service, output, terminal }) {
    if (service.kind !== "http") {
      throw new UsageError(
        "A database cannot check a message, whose schema is in the code: send it by a service, http(s)://...",
      );
    }
    const [given, name, json = "null"] = args.positionals as [string, string, string?];
    const payload = await readJsonArgument(json, terminal);
    const runId = await findRunId(service, given);
    const body = { name, payload, id: args.text("id") };
    const sent = await askApi(service, "POST /send", { query: { runId }, body });
    output.object(sent, ({ messageId, disposition }) => output.line(`Message ${messageId} is ${disposition}`));
  },
};

const DEFAULT_LIMIT = 20;
const PAGE = 1_000;

/** Lists the waits that nobody has signalled. */
export const waits: Command = {
  name: "waits",
  usage: "[--job NAME] [--label KEY=VALUE]",
  about: "list the waits that nobody has signalled yet, soonest deadline first",
  options: {
    job: { value: "NAME", about: "of runs of this job", isList: true },
    label: { value: "KEY=VALUE", about: "of runs with this label", isList: true },
    limit: { value: "NUMBER", about: `how many (${DEFAULT_LIMIT})` },
  },
  async run({ args, service, output }) {
    const now = Date.now();
    const limit = args.integer("limit") ?? DEFAULT_LIMIT;
    const filter = toQuery(readFilter(args, now));
    const waits: Omit<OpenWait, "signalledBy">[] = [];
    let cursor: string | undefined;
    let hasMore = true;
    while (hasMore && waits.length < limit) {
      const query = { ...filter, cursor, limit: Math.min(PAGE, limit - waits.length) };
      const page = await askApi(service, "GET /waits/open", { query });
      waits.push(...page.waits);
      hasMore = page.next !== null;
      cursor = page.next ?? undefined;
    }
    output.list(waits, {
      columns: [
        ["WAIT", ({ id }) => id],
        ["NAME", ({ name }) => name, "cut"],
        ["JOB", ({ jobName }) => jobName, "cut"],
        ["RUN", ({ runId }) => runId],
        ["WAITS SINCE", ({ suspendedAt, createdAt }) => describeInstant(suspendedAt ?? createdAt, now)],
        ["DEADLINE", ({ deadlineAt }) => deadlineAt === null ? "none" : describeInstant(deadlineAt, now)],
      ],
      none: "No run waits for a signal",
    });
    if (hasMore) output.note("There are more; --limit shows them");
  },
};

/** Ends a wait. */
export const signal: Command = {
  name: "signal",
  usage: "WAIT JSON|-",
  about: "end a wait by a signal with this payload",
  options: { "signal-id": { value: "ID", about: "identifies a repeated signal (made of the wait and the payload)" } },
  async run({ args, service, output, terminal }) {
    const [waitId, json] = [args.positionals[0]!, args.positionals[1]!];
    const payload = await readJsonArgument(json, terminal);
    const found = await askApi(service, "GET /find", { query: { q: waitId } });
    const run = found.find(({ by }) => by === "waitId")?.run;
    if (run === undefined) throw new NotFoundError(`There is no wait "${waitId}": \`holdfast waits\` lists them`);
    // The same command again is the same signal.
    const hash = createHash("sha256").update(JSON.stringify(payload)).digest("hex").slice(0, 16);
    const signalId = args.text("signal-id") ?? `cli-${waitId}-${hash}`;
    const query = { runId: run.id, waitId };
    const receipt = await askApi(service, "POST /signal", { query, body: { signalId, payload } });
    output.object(receipt, ({ disposition }) => output.line(`The signal is ${disposition}; run ${run.id} resumes`));
  },
};
