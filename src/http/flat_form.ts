import type { Json } from "../values/json.ts";
import { propertyOf } from "../values/property_of.ts";
import type { Wait } from "../model/wait.ts";

/** A button of a question: a label, and the payload of the signal that it sends. */
export interface Action {
  /** What it is called. */
  label: string;
  /** The payload. */
  payload: Json;
}

/** A field of a form that has no fields inside of fields. */
export interface FlatField {
  /** The name of the member of the payload. */
  name: string;
  /** The type of its value. */
  type: "string" | "number" | "integer" | "boolean";
  /** Whether it has to have a value. */
  isRequired: boolean;
  /** The values of an enum; `null`: it is none. */
  choices: readonly string[] | null;
  /** What its JSON Schema says beside that: `title`, `description`, `default`, limits and the format. */
  hints: { readonly [keyword: string]: Json };
}

/** More buttons or fields are not shown. */
const MAX_ACTIONS = 20;
const MAX_FIELDS = 20;
const TYPES: readonly string[] = ["string", "number", "integer", "boolean"] satisfies FlatField["type"][];
const HINTS = ["title", "description", "default", "minLength", "maxLength", "minimum", "maximum", "format"];
const FORMATS: unknown[] = ["date", "date-time", "email", "uri"];

/** What a wait asks: `metadata.message`, or its name. */
export function messageOf({ name, metadata }: Pick<Wait, "name" | "metadata">): string {
  const message = propertyOf(metadata, "message");
  return typeof message === "string" && message.trim() !== "" ? message : name;
}

/** The buttons of a wait, `metadata.actions: [{ label, payload }]`, at most 20; empty: it has none. */
export function actionsOf({ metadata }: Pick<Wait, "metadata">): Action[] {
  const actions = propertyOf(metadata, "actions");
  if (!Array.isArray(actions)) return [];
  return actions.slice(0, MAX_ACTIONS).flatMap((action: unknown) => {
    const label = propertyOf(action, "label");
    return typeof label === "string" ? [{ label, payload: (propertyOf(action, "payload") ?? null) as Json }] : [];
  });
}

/**
 * The fields of a JSON Schema that is *flat*: an object of at most 20 strings, numbers, integers, booleans and enums of
 * strings. `null`: it is not.
 */
export function flatFields(schema: Json | undefined): FlatField[] | null {
  const properties = propertyOf(schema, "properties") ?? {};
  if (propertyOf(schema, "type") !== "object" || typeof properties !== "object") return null;
  const required = propertyOf(schema, "required");
  const entries = Object.entries(properties as object);
  if (entries.length > MAX_FIELDS) return null;
  const fields = entries.map(([name, each]) => toField(name, each, Array.isArray(required) && required.includes(name)));
  return fields.every((field) => field !== null) ? fields : null;
}

function toField(name: string, schema: unknown, isRequired: boolean): FlatField | null {
  const given = propertyOf(schema, "const") === undefined ? propertyOf(schema, "enum") : [propertyOf(schema, "const")];
  const type = propertyOf(schema, "type") ?? (given === undefined ? undefined : "string");
  if (typeof type !== "string" || !TYPES.includes(type)) return null;
  const isEnum = given !== undefined;
  if (isEnum && (type !== "string" || !Array.isArray(given) || !given.every((value) => typeof value === "string"))) {
    return null;
  }
  const hints = HINTS.map((keyword) => [keyword, propertyOf(schema, keyword)] as const)
    .filter(([keyword, value]) => value !== undefined && (keyword !== "format" || FORMATS.includes(value)));
  return {
    name,
    type: type as FlatField["type"], // checked above
    isRequired,
    choices: isEnum ? given as string[] : null,
    hints: Object.fromEntries(hints) as FlatField["hints"], // parts of a JSON Schema
  };
}
