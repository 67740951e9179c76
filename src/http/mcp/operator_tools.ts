import { RUN_STATUSES } from "../../model/run.ts";
import { isInstance } from "../../values/unknown_values.ts";
import type { Json } from "../../values/json.ts";
import type { McpCall, McpRoute } from "../handler_options.ts";
import { noSuchRun } from "../response.ts";
import { isObject, type JsonObject, refusalText } from "./rpc.ts";
import { toError } from "./tasks.ts";

/** A tool for what operators do: a route, and what it takes. */
interface OperatorTool {
  route: McpRoute;
  description: string;
  /** Whether it changes nothing; otherwise, whether it destroys something. */
  hint: "reads" | "changes" | "destroys";
  /** Its parameters, each a string of the URL of its route, but for the payload. */
  properties: JsonObject;
  required?: readonly string[];
  body?: (given: JsonObject) => Json;
}

const IN_BODY = "payload";
const TEXT = { type: "string" };
const RUN = { runId: { ...TEXT, description: "The id of a run" } };
const JOB = { jobName: { ...TEXT, description: "Only runs of this job" } };

/** The tools of `operate: true`, by name. */
export const OPERATOR_TOOLS: Readonly<Record<string, OperatorTool>> = {
  list_runs: {
    route: "runs",
    description: "Lists runs of jobs, newest first, without their inputs and outputs.",
    hint: "reads",
    properties: {
      ...JOB,
      status: {
        ...TEXT,
        enum: [...RUN_STATUSES],
        description: "Only runs with this status",
      },
      limit: { type: "integer", minimum: 1, maximum: 100, description: "How many runs at most; 50 by default" },
      before: { ...TEXT, description: "The id of a run: only runs that were triggered before it" },
    },
  },
  get_run: {
    route: "run",
    description: "Shows a run: its status, input, output, error and progress.",
    hint: "reads",
    properties: RUN,
    required: ["runId"],
  },
  explain_run: {
    route: "explain",
    description: "Says why a run is not executed, and what it waits for.",
    hint: "reads",
    properties: RUN,
    required: ["runId"],
  },
  list_failures: {
    route: "failures",
    description: "Groups the newest failed runs by their errors.",
    hint: "reads",
    properties: { ...JOB, since: { ...TEXT, description: "Runs that ended at this instant or later: ISO 8601" } },
  },
  retry_run: {
    route: "retrigger",
    description: "Retries a run that has ended: from the step that failed, or from the start. Returns the new run.",
    hint: "changes",
    properties: { ...RUN, from: { ...TEXT, enum: ["failure", "start"], description: "Default: failure" } },
    required: ["runId"],
  },
  cancel_run: {
    route: "cancel",
    description: "Cancels a run that has not ended.",
    hint: "destroys",
    properties: RUN,
    required: ["runId"],
  },
  answer_wait: {
    route: "signal",
    description: "Answers the question of a run that waits. Ask the user before you answer for them.",
    hint: "changes",
    properties: {
      ...RUN,
      waitId: { ...TEXT, description: "The id of the wait: explain_run shows it" },
      payload: { description: "The answer: any JSON that fits the schema of the wait" },
    },
    required: ["runId", "waitId", "payload"],
    body: ({ waitId = null, payload = null }) => ({ signalId: `mcp/${waitId}`, payload }),
  },
};

/** The tools as `tools/list` shows them. */
export function listOperatorTools(): JsonObject[] {
  return Object.entries(OPERATOR_TOOLS).map(([name, { description, hint, properties, required = [] }]) => ({
    name,
    description,
    inputSchema: { type: "object", properties, required: [...required] },
    annotations: {
      readOnlyHint: hint === "reads",
      ...(hint === "reads" ? {} : { destructiveHint: hint === "destroys" }),
    },
  }));
}

/** Calls one of the tools: its route decides who may. */
export async function callOperatorTool(call: McpCall, tool: OperatorTool, given: JsonObject): Promise<JsonObject> {
  const known = tool.route === "retrigger" ? { ...given, from: given.from ?? "failure" } : given;
  const extra: Record<string, string> = tool.route === "runs" ? { fields: "summary" } : {};
  for (const [name, value] of Object.entries(known)) {
    if (!Object.hasOwn(tool.properties, name)) return toError(`There is no parameter "${name}"`);
    if (name === IN_BODY || value === null) continue;
    if (typeof value !== "string" && typeof value !== "number") {
      return toError(`The parameter ${name} must be a string or a number`);
    }
    extra[name] = String(value);
  }
  for (const name of tool.required ?? []) {
    if (!Object.hasOwn(known, name)) return toError(`The parameter ${name} is missing`);
  }
  try {
    const answer = await call.ask(tool.route, extra, tool.body?.(given));
    return {
      content: [{ type: "text", text: JSON.stringify(answer) }],
      ...(isObject(answer) ? { structuredContent: answer } : {}),
    };
  } catch (error) {
    // A hook hides a run: the caller must not learn that it exists. To clients, a 404 would be the end of their session.
    const isHidden = isInstance(error, Response) && error.status === 404;
    const text = refusalText(isHidden ? noSuchRun() : error);
    if (text === null) throw error;
    return toError(text);
  }
}
