import type { ClientMessage } from "../../model/message.ts";
import type { Command } from "../command.ts";
import { UsageError } from "../arguments.ts";
import { describeInstant } from "../output/describe.ts";
import { toJsonLine } from "../../values/text.ts";
import { askApi, findRunId } from "../service/api.ts";
import { readJsonArgument } from "../read_options.ts";

const MAX_PAYLOAD = 80;

/** Lists the messages of a run. */
export const messages: Command = {
  name: "messages",
  usage: "RUN",
  about: "list the messages that were sent to a run, and which it has received",
  arity: [1, 1],
  options: {},
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
    return 0;
  },
};

/** Sends a message to a run. */
export const send: Command = {
  name: "send",
  usage: "RUN NAME [JSON|-]",
  about: "send a message with this payload (null) to a run, by a service",
  arity: [2, 3],
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
    const id = args.text("id");
    const body = { name, payload, ...(id === undefined ? {} : { id }) };
    const sent = await askApi(service, "POST /send", { query: { runId }, body });
    output.object(sent, ({ messageId, disposition }) => output.line(`Message ${messageId} is ${disposition}`));
    return 0;
  },
};
