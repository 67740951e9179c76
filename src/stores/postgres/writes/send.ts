import { NotFoundError } from "../../../model/error.ts";
import {
  describeTarget,
  isSameMessage,
  messageIdError,
  runEndedError,
  tooManyMessagesError,
} from "../../../model/message.ts";
import { isTerminal, type RunStatus } from "../../../model/run.ts";
import type { Enqueued } from "../../../store/new_run.ts";
import type { SendOutcome, SendRequest } from "../../../store/send_request.ts";
import type { JsonText } from "../../../values/json.ts";
import { fromInput, type IdentityRow, toRunIdentity } from "../../rows.ts";
import { type RunRow, toRunText } from "../rows.ts";
import { toNewRunParameter } from "./parameters.ts";

/** A message to send. */
export function toSendParameter({ to, message, start, expect }: SendRequest): object {
  return {
    ...("runId" in to ? to : { names: to.jobNames, key: to.key }),
    ...message,
    input: fromInput(message.payload, message.input),
    start: start === null ? null : toNewRunParameter(start),
    ...(expect === undefined ? {} : { expect }),
  };
}

/** What `fn.send()` returns. */
export type SendAnswer =
  | { state: "none" | "changed"; run: null }
  | {
    state: "known";
    run: InboxRow;
    isOpen: boolean;
    message: { name: string; payload: JsonText };
    started: RunRow | null;
  }
  | { state: "accepted"; run: InboxRow; started?: RunRow }
  | { state: "ended" | "full" | "changed"; run: InboxRow };

/** A run to which a message was sent. */
interface InboxRow extends IdentityRow {
  status: RunStatus;
  retriggered_as: string | null;
}

/** What `fn.send()` returns, as the outcome; throws if it was refused. */
export function toSendOutcome(answer: SendAnswer, { to, message, start, expect }: SendRequest): SendOutcome {
  const run = answer.run === null ? null : toRunIdentity(answer.run);
  if (run === null || answer.run === null) {
    if (answer.state === "changed") return { changed: true, found: null };
    throw new NotFoundError(`There is no ${describeTarget(to)}`);
  }
  if (answer.state === "known") {
    if (isSameMessage(answer.message, message)) {
      return { run, disposition: "duplicate", started: toStarted(answer.started) };
    }
    const found = answer.isOpen || start === null ? run : null;
    if (expect === undefined || expect === (found?.id ?? null)) throw messageIdError(run.id, message.id);
    return { changed: true, found };
  }
  const { status, retriggered_as: retriggeredAs } = answer.run;
  if (answer.state === "ended") throw runEndedError({ runId: run.id, status, retriggeredAs }, isTerminal(status));
  if (answer.state === "full") throw tooManyMessagesError(run.id);
  return answer.state === "changed"
    ? { changed: true, found: run }
    : { run, disposition: "accepted", started: toStarted(answer.state === "accepted" ? answer.started ?? null : null) };
}

function toStarted(row: RunRow | null): Enqueued | null {
  return row === null ? null : { run: toRunText(row), disposition: "created" };
}
