import assert from "node:assert/strict";
import { type ErrorObject, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { openApiDocument } from "../../../src/http/openapi/document.ts";
import { bodySchemas } from "../../../src/http/requests/body_schemas.ts";
import { routes } from "../../../src/http/routes.ts";
import { CLIENT_CODES } from "../../../src/http/response.ts";

// deno-lint-ignore no-explicit-any -- a document is JSON of any shape
type Document = any;

const document: Document = JSON.parse(JSON.stringify(openApiDocument(routes, [], "", bodySchemas())));
const ajv = new Ajv2020({ strict: false, allErrors: true });
(addFormats as unknown as (ajv: Ajv2020) => void)(ajv); // a CommonJS module, whose types Deno reads differently
// Our own answers have no field that the document leaves out. A client must not rely on that.
ajv.addSchema({ $id: "document", components: closed(document.components) });
const compiled = new Map<string, ValidateFunction>();

/** An object with properties allows no others. */
function closed(schema: Document): Document {
  if (Array.isArray(schema)) return schema.map(closed);
  if (typeof schema !== "object" || schema === null) return schema;
  const copy = Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, closed(value)]));
  const isObject = copy.type === "object" || (Array.isArray(copy.type) && copy.type.includes("object"));
  return isObject && copy.properties !== undefined && copy.additionalProperties === undefined
    ? { ...copy, additionalProperties: false }
    : copy;
}

/** Checks that a value fits a schema, which may refer to those of the document. */
export function checkSchema(schema: Document, value: unknown, what: string): void {
  const key = JSON.stringify(schema).replaceAll('"#/', '"document#/');
  let validate = compiled.get(key);
  if (validate === undefined) compiled.set(key, validate = ajv.compile(closed(JSON.parse(key))));
  if (validate(value)) return;
  const errors = validate.errors!.map(({ instancePath, message, params }: ErrorObject) =>
    `${instancePath} ${message} ${JSON.stringify(params)}`
  );
  assert.fail(`${what} does not fit the OpenAPI document: ${errors.join("; ")}: ${JSON.stringify(value)}`);
}

/**
 * Checks that an answer of a handler fits its OpenAPI document. Answers of hooks, which the document does not know, and
 * paths that are no routes, are passed over.
 */
export function checkAnswer(method: string, path: string, status: number, body: unknown): void {
  const { pathname } = new URL(path, "http://localhost");
  const found = Object.keys(document.paths)
    .filter((route) => pathname.endsWith(route) && document.paths[route][method.toLowerCase()] !== undefined)
    .sort((one, other) => other.length - one.length)[0];
  if (found === undefined) return;
  const { code, error } = (body ?? {}) as { code?: string; error?: string };
  const isHooks = status !== 200 && status !== 503 && !CLIENT_CODES.some((known) => known === code);
  if (isHooks || error === "There is no such path") return;
  const { responses } = document.paths[found][method.toLowerCase()];
  const described = responses[status];
  const what = `The answer ${status} of ${method} ${found}`;
  if (described === undefined) assert.fail(`${what} is not described: ${JSON.stringify(body)}`);
  const schema = described.content?.["application/json"]?.schema;
  if (schema === undefined) return;
  checkSchema(schema, body, what);
}

/** Checks that an event of a stream fits the OpenAPI document. */
export function checkEvent(event: unknown): void {
  checkSchema({ $ref: "#/components/schemas/StreamMessage" }, event, "The event");
}
