import { HoldfastError, ValidationError } from "../../model/error.ts";
import { isInstance, propertyOf } from "../../values/unknown_values.ts";
import type { TerminalStatus } from "../../model/run.ts";
import type { ClientRun } from "../../model/client_run.ts";
import { actionsOf, type FlatField, flatFieldsOf, messageOf } from "../../model/flat_form.ts";
import type { Wait } from "../../model/wait.ts";
import type { Json } from "../../values/json.ts";
import type { McpCall } from "../handler_options.ts";
import { isObject, issuesOf, type JsonObject, RpcError, type RpcRequest, takesTasks, TASKS } from "./rpc.ts";

const POLL_MS = 1_000;
const POLL_QUESTION_MS = 5_000;

/** Refuses a client that does not take tasks. */
export function checkTakesTasks(request: RpcRequest): void {
  if (takesTasks(request)) return;
  const data = { requiredCapabilities: { extensions: { [TASKS]: {} } } };
  throw new RpcError("capability", `The client must have the extension ${TASKS}`, data);
}

/** A run, which has to be one of the jobs of the tools, and readable for the caller. */
export async function readTask(call: McpCall, request: RpcRequest, jobNames: readonly string[]): Promise<ClientRun> {
  checkTakesTasks(request);
  const { taskId } = request.params;
  if (typeof taskId !== "string") throw new RpcError("params", "taskId must be a string");
  const run = await readRun(call, taskId);
  if (run === null || !jobNames.includes(run.jobName)) throw new RpcError("params", "There is no such task");
  return run;
}

/** A run; `null`: there is none, or a hook hides it. */
export async function readRun(call: McpCall, runId: string): Promise<ClientRun | null> {
  try {
    return await call.readRun(runId);
  } catch (error) {
    const isHidden = isInstance(error, Response) ? error.status === 404 : codeOf(error) === "not_found";
    if (isHidden || codeOf(error) === "invalid_request") return null; // an id that no run can have
    throw error;
  }
}

function codeOf(error: unknown): string | null {
  return isInstance(error, HoldfastError) ? error.code : null;
}

/** A run as a task. Once it has ended, it is known how long it is kept, from its beginning on. */
export function toTask({ retention }: McpCall, run: ClientRun, hasQuestion = false): JsonObject {
  const { progress, held } = run;
  const counted = progress === undefined ? null : `${progress.current}${progress.total ? ` of ${progress.total}` : ""}`;
  const keptMs = retention[run.status as TerminalStatus]; // of no other status
  const message = held !== undefined ? `held: ${held.message}` : progress?.message ?? counted;
  return {
    taskId: run.id,
    status: hasQuestion ? "input_required" : statusOf(run),
    ...(message === null ? {} : { statusMessage: message }),
    createdAt: run.createdAt,
    lastUpdatedAt: run.completedAt ?? run.startedAt ?? run.createdAt,
    ttlMs: keptMs === undefined || keptMs === Infinity || run.completedAt === undefined
      ? null
      : Date.parse(run.completedAt) - Date.parse(run.createdAt) + keptMs,
    pollIntervalMs: hasQuestion ? POLL_QUESTION_MS : POLL_MS,
  };
}

/** A run that its own code failed is completed, with an error as its result: the specification forbids `failed` for it. */
function statusOf({ status, failureKind }: ClientRun): string {
  if (status === "completed" || status === "cancelled") return status;
  if (status === "failed") return failureKind === "error" ? "completed" : "failed";
  return "working";
}

/** `tasks/get`: a task with its result, its error or its questions. */
export async function getTask(call: McpCall, request: RpcRequest, run: ClientRun): Promise<JsonObject> {
  const questions = await readQuestions(call, request, run);
  const inputRequests = Object.fromEntries(questions.map(({ wait, params }) => [
    wait.name,
    { method: "elicitation/create", params },
  ]));
  const task = toTask(call, run, questions.length > 0);
  return {
    ...task,
    ...(questions.length > 0 ? { inputRequests } : {}),
    ...(task.status === "completed" ? { result: toResult(run, true) } : {}),
    ...(task.status === "failed" ? { error: { code: -32603, message: run.error ?? "The run failed" } } : {}),
  };
}

/** The result of a tool: the output of a run, or why there is none. */
export function toResult({ status, output, error }: ClientRun, isStateless: boolean): JsonObject {
  if (status !== "completed") return toError(error ?? (status === "cancelled" ? "The run was cancelled" : "It failed"));
  const text = typeof output === "string" ? output : JSON.stringify(output);
  // Older clients take nothing but objects.
  const isStructured = isStateless ? output !== null : isObject(output);
  return { content: [{ type: "text", text }], ...(isStructured ? { structuredContent: output } : {}) };
}

/** The result of a tool that failed: the model gets to see it. */
export function toError(text: string): JsonObject {
  return { content: [{ type: "text", text }], isError: true };
}

/** A question of a run: a wait that is open. */
interface Question {
  wait: Wait;
  /** The parameters of `elicitation/create`. */
  params: JsonObject;
  /** The payload of an answer; `null`: the page takes the answer. */
  read: ((content: JsonObject) => Json) | null;
}

/** The questions of a run that this client can put to its user: by a form, or by the address of a page. */
async function readQuestions(call: McpCall, request: RpcRequest, run: ClientRun): Promise<Question[]> {
  const { elicitation } = request.capabilities;
  // A run that nobody has started yet has asked nothing; the answers to one that is held come when it goes on.
  if (!isObject(elicitation) || run.isTerminal || run.startedAt === undefined || run.held !== undefined) return [];
  const takesUrls = "url" in elicitation;
  const takesForms = "form" in elicitation || !takesUrls;
  const questions: Question[] = [];
  for (const wait of await readWaits(call, run)) {
    if (wait.status !== "pending") continue;
    const question = (takesForms ? toQuestion(wait) : null) ?? (takesUrls ? await toAddress(wait, call) : null);
    if (question !== null) questions.push(question);
  }
  return questions;
}

const DAY_MS = 86_400_000;

/** A wait as the address of a page that answers it; `null`: the handler has no links, or the page has no form for it. */
async function toAddress(wait: Wait, { linkTo, host }: McpCall): Promise<Question | null> {
  if (linkTo === null) return null;
  // Rounded, so that a client that polls receives the same address.
  const inADay = new Date(Math.ceil((host.now() + DAY_MS) / DAY_MS) * DAY_MS);
  try {
    const url = await linkTo(wait, wait.deadlineAt === null ? { expiresAt: inADay } : {});
    return { wait, params: { mode: "url", message: messageOf(wait.metadata) ?? wait.name, url }, read: null };
  } catch (error) {
    if (isInstance(error, TypeError)) return null; // toWait() says so of a wait that the page cannot ask
    throw error;
  }
}

/** The waits of a run; none if the caller may not see them. */
async function readWaits(call: McpCall, { id: runId }: ClientRun): Promise<Wait[]> {
  try {
    return await call.readWaits(runId);
  } catch (error) {
    if (isInstance(error, Response) || codeOf(error) === "forbidden" || codeOf(error) === "not_found") return [];
    throw error;
  }
}

/** A wait as a question: its actions as a choice, or the form of its schema; `null`: it has no form. */
function toQuestion(wait: Wait): Question | null {
  const actions = actionsOf(wait.metadata);
  const message = messageOf(wait.metadata) ?? wait.name;
  const ask = (properties: JsonObject, required: string[]) => ({
    mode: "form",
    message,
    requestedSchema: { type: "object", properties, required },
  });
  if (actions.length > 0) {
    const answer = { type: "string", enum: actions.map(({ label }) => label) };
    const read = ({ answer }: JsonObject) => {
      const action = actions.find(({ label }) => label === answer);
      if (action !== undefined) return action.payload;
      throw new RpcError("params", `answer must be one of ${actions.map(({ label }) => `"${label}"`).join(", ")}`);
    };
    return { wait, params: ask({ answer }, ["answer"]), read };
  }
  const isUnchecked = wait.payloadSchema === undefined;
  const fields = isUnchecked ? [] : flatFieldsOf(wait.payloadSchema);
  if (fields === null || fields.some(isMixed)) return null;
  const properties = fields.map((field) => [field.name, toPrimitive(field)] as const);
  const required = fields.filter(({ isRequired }) => isRequired).map(({ name }) => name);
  const read = (content: JsonObject) => isUnchecked && Object.keys(content).length === 0 ? null : content;
  return { wait, params: ask(Object.fromEntries(properties), required), read };
}

const FORMATS = ["date", "date-time", "email", "uri"];

/** Whether a field has values of several types, which no field of MCP has. */
function isMixed({ type, choices }: FlatField): boolean {
  return type === "string" && choices !== null && choices.some((choice) => typeof choice !== "string");
}

/** A field in the words of MCP, where strings alone have choices. */
function toPrimitive({ name, title, description, type, choices, format, default: given }: FlatField): JsonObject {
  const oneOf = choices === null || type === "string" ? null : `One of ${choices.join(", ")}`;
  const told = [description, oneOf].filter((text) => text !== null).join(". ");
  return {
    type,
    ...(title === name ? {} : { title }),
    ...(told === "" ? {} : { description: told }),
    ...(choices !== null && type === "string" ? { enum: [...choices] } : {}),
    ...(choices === null && format !== null && FORMATS.includes(format) ? { format } : {}),
    ...(given === null ? {} : { default: given }),
  };
}

/** `tasks/update`: signals the waits that are answered. Questions that are unknown or closed are ignored. */
export async function updateTask(call: McpCall, request: RpcRequest, run: ClientRun): Promise<JsonObject> {
  const { inputResponses } = request.params;
  if (!isObject(inputResponses)) throw new RpcError("params", "inputResponses must be an object");
  // A client that has not declared what it takes may answer, too.
  const { elicitation = {} } = request.capabilities;
  const asked = { ...request, capabilities: { ...request.capabilities, elicitation } };
  for (const { wait, read } of await readQuestions(call, asked, run)) {
    if (read === null || !Object.hasOwn(inputResponses, wait.name)) continue;
    const response = inputResponses[wait.name];
    const action = propertyOf(response, "action");
    if (action === "decline" || action === "cancel") continue; // only the job knows what a refusal means
    const content = propertyOf(response, "content") ?? {};
    if (action !== "accept" || !isObject(content)) {
      throw new RpcError("params", `The response to "${wait.name}" must have an action and a content`);
    }
    const signalId = `mcp/${wait.name}`.slice(0, 255).toWellFormed();
    try {
      await call.ask("signal", { runId: run.id, waitId: wait.id }, { signalId, payload: read(content) });
    } catch (error) {
      if (isInstance(error, ValidationError)) throw new RpcError("params", error.message, issuesOf(error));
      if (!["conflict", "wait_expired", "not_found"].includes(codeOf(error) ?? "")) throw error;
    }
  }
  return {};
}

/** `tasks/cancel`: a run that has ended is acknowledged, too. */
export async function cancelTask(call: McpCall, run: ClientRun): Promise<JsonObject> {
  try {
    await call.ask("cancel", { runId: run.id });
  } catch (error) {
    if (codeOf(error) !== "conflict") throw error;
  }
  return {};
}
