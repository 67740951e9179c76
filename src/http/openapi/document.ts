import type { ErrorCode } from "../../model/error.ts";
import type { Job } from "../../model/job.ts";
import { jsonSchemaOf } from "../../model/schema.ts";
import { PACKAGE_VERSION } from "../../model/version.ts";
import type { ParameterDescription } from "../requests/parameters.ts";
import { CLIENT_CODES, statusOf } from "../response.ts";
import type { AnswerDescription, Route } from "../route.ts";
import { COUNT, type JsonSchema, listOf, objectOf, oneOf, optional, ref, TEXT } from "./json_schema.ts";
import { OPERATOR_SCHEMAS, READ_SCHEMAS } from "./operator_schemas.ts";
import { EVENT_SCHEMAS, RUN_SCHEMAS } from "./run_schemas.ts";

const EVERYWHERE: readonly ErrorCode[] = ["invalid_request", "forbidden", "unknown_host", "internal", "unavailable"];
const WITH_BODY: readonly ErrorCode[] = ["body_timeout", "body_too_large", "unsupported_encoding"];

/**
 * The OpenAPI 3.1 document of a handler.
 *
 * @param routes The routes, by the names of their functions.
 * @param jobs The newest version of each job.
 * @param basePath The prefix of the paths.
 * @param bodies The schemas of the bodies.
 */
export function openApiDocument(
  routes: object,
  jobs: Iterable<Job>,
  basePath: string,
  bodies: Readonly<Record<string, JsonSchema>>,
): JsonSchema {
  const paths: Record<string, Record<string, JsonSchema>> = {};
  for (const [name, route] of Object.entries<Route>({ ...routes })) {
    paths[route.path] = { ...paths[route.path], [route.method.toLowerCase()]: toOperation(name, route) };
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "Holdfast",
      version: PACKAGE_VERSION,
      description: "Runs of jobs: triggers, lists, streams and signals.",
    },
    servers: [{ url: basePath === "" ? "/" : basePath }],
    paths,
    components: {
      schemas: {
        ...RUN_SCHEMAS,
        ...READ_SCHEMAS,
        ...OPERATOR_SCHEMAS,
        ...EVENT_SCHEMAS,
        ...bodies,
        Error: ERROR,
        ...triggerSchemas(jobs, bodies.TriggerRequest!), // it is one of the bodies
      },
    },
  };
}

interface ErrorBody {
  error: string;
  code: ErrorCode;
  issues: unknown;
  issuesLeftOut: number;
  from: number;
  offset: string;
}

const ISSUE = objectOf<{ path: unknown; message: string }>()({
  path: listOf({ type: ["string", "number"] }),
  message: TEXT,
});
const ERROR: JsonSchema = objectOf<ErrorBody>()({
  error: { ...TEXT, description: "The error in words" },
  code: oneOf(CLIENT_CODES),
  issues: optional({ ...listOf(ISSUE), description: "Why a schema has refused the input or the body: 20 at most" }),
  issuesLeftOut: optional({ type: "integer", minimum: 1 }),
  from: optional({ ...COUNT, description: "With stream_reset: how many items still count" }),
  offset: optional({ ...TEXT, description: "With stream_reset: where to go on from" }),
});

function toOperation(operationId: string, route: Route): JsonSchema {
  const { summary, parameters, body } = route;
  const schema = body?.schema ?? null;
  return {
    operationId,
    summary,
    ...(parameters.length === 0 ? {} : { parameters: parameters.map(toParameter) }),
    ...(schema === null ? {} : {
      requestBody: { required: body?.isOptional !== true, content: { "application/json": { schema: ref(schema) } } },
    }),
    responses: toResponses(route, schema !== null),
  };
}

function toParameter({ name, schema, description, required = false, isRepeatable }: ParameterDescription): JsonSchema {
  return {
    name,
    in: "query",
    ...(description === undefined ? {} : { description }),
    required,
    schema: isRepeatable ? listOf(schema) : schema,
  };
}

function toResponses(route: Route, hasBody: boolean): JsonSchema {
  const { method, answers, answersUnavailable = false, errors = [], parameters } = route;
  const codes = [
    ...EVERYWHERE,
    ...(hasBody ? WITH_BODY : []),
    ...(method === "GET" ? [] : ["cross_origin"] as const),
    ...(parameters.some(({ name }) => name === "runId") ? ["not_found"] as const : []),
    ...errors,
  ];
  const byStatus = Map.groupBy(codes, statusOf);
  const failures = Array.from(byStatus, ([status, codes]) => {
    const isShared = status === 503 && answersUnavailable && typeof answers === "object";
    const schema = isShared ? { anyOf: [answers, ref("Error")] } : ref("Error");
    return [`${status}`, { description: [...new Set(codes)].join(", "), content: { "application/json": { schema } } }];
  });
  return {
    "200": toAnswer(answers),
    ...(answers === "events" ? { "204": { description: "The stream that the client resumes has ended" } } : {}),
    ...(answers === "items"
      ? { "204": { description: "Nothing came" }, "304": { description: "The client has these items" } }
      : {}),
    ...Object.fromEntries(failures),
    default: { description: "What a hook of the host answers" },
  };
}

function toAnswer(answer: AnswerDescription): JsonSchema {
  if (answer === "text") return { description: "Text", content: { "text/plain": { schema: TEXT } } };
  if (answer === "document") {
    return { description: "This document", content: { "application/json": { schema: { type: "object" } } } };
  }
  if (answer === "items") {
    const list = { schema: { type: "array", items: {} } };
    return {
      description: "Items; as server-sent events with live=sse, as text with as=text",
      content: { "application/json": list, "text/event-stream": { schema: TEXT }, "text/plain": { schema: TEXT } },
    };
  }
  if (answer === "events") {
    return {
      description: "Server-sent events; the data of each is JSON",
      content: { "text/event-stream": { schema: ref("StreamMessage") } },
    };
  }
  return { description: "Done", content: { "application/json": { schema: answer } } };
}

/** The body of a trigger, with one alternative for each job, and the schemas of the inputs. */
function triggerSchemas(jobs: Iterable<Job>, request: JsonSchema): Record<string, JsonSchema> {
  const schemas: Record<string, JsonSchema> = {};
  const alternatives = Array.from(jobs, (job, at) => {
    const name = `Input${at + 1}_${job.name.replaceAll(/[^A-Za-z0-9._-]/g, "_")}`;
    schemas[name] = inputSchema(job, name);
    const isDescribed = Object.keys(schemas[name]).length > 0;
    return triggerOf(request, { jobName: oneOf([job.name, ...job.changes.aliases]), input: ref(name) }, isDescribed);
  });
  return { ...schemas, TriggerRequest: alternatives.length === 0 ? request : { oneOf: alternatives } };
}

/** What describes an input does not say whether it may be missing: most that are described may not. */
function triggerOf(request: JsonSchema, fields: object, isInputRequired: boolean): JsonSchema {
  const properties = { ...request.properties as object, ...fields };
  return { ...request, properties, ...(isInputRequired ? { required: ["jobName", "input"] } : {}) };
}

/** The schema of an input, as its library describes it; `{}` if it does not. */
function inputSchema({ input }: Job, name: string): JsonSchema {
  const schema = jsonSchemaOf(input);
  if (schema === null) return {};
  try {
    const text = JSON.stringify(schema); // a library may return more than JSON
    const { $schema: _, ...described } = moveReferences(JSON.parse(text), `#/components/schemas/${name}`) as JsonSchema;
    return described;
  } catch {
    return {};
  }
}

/** Makes references to the root of a schema references to its new place. */
function moveReferences(value: unknown, root: string): unknown {
  if (Array.isArray(value)) return value.map((item) => moveReferences(item, root));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) =>
      key === "$ref" && typeof item === "string" && item.startsWith("#")
        ? [key, root + item.slice(1)]
        : [key, moveReferences(item, root)]
    ),
  );
}
