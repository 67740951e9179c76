import type { Json } from "../values/json.ts";

/** A value of a field of a flat form. */
export type FlatValue = string | number | boolean;

/** A field of a flat form. */
export interface FlatField {
  /** The name of the member of the payload. */
  name: string;
  /** What it is called: the `title` of its schema, or its name. */
  title: string;
  /** What is meant; `null`: the schema does not say it. */
  description: string | null;
  /** What it takes; of one with choices the type of all of them, or `string` if they differ. */
  type: "string" | "number" | "integer" | "boolean";
  /** The values that it takes; `null`: any of its type. */
  choices: readonly FlatValue[] | null;
  /** The `format` of a string; `null`: it has none. */
  format: string | null;
  /** Whether the payload must have it. */
  isRequired: boolean;
  /** The `default` of the schema; `null`: it has none. */
  default: FlatValue | null;
}

/** One of the answers that a job offers in the `metadata.actions` of a wait. */
export interface WaitAction {
  /** The words on the button. */
  label: string;
  /** The payload of the signal. */
  payload: Json;
}

const MAX_FIELDS = 20;
const MAX_ACTIONS = 8;
const TYPES = ["string", "number", "integer", "boolean"] as const;

/**
 * The fields of a payload that a plain form can ask for: an object of at most 20 strings, numbers, integers, booleans and
 * choices among such values. `null`: the schema is not flat, and no form of fields can be made of it.
 */
export function flatFieldsOf(schema: Json | undefined): readonly FlatField[] | null {
  if (!isObject(schema) || schema.type !== "object" || hasOthers(schema)) return null;
  const { properties = {}, required = [] } = schema;
  if (!isObject(properties) || !Array.isArray(required)) return null;
  const names = Object.keys(properties);
  // A member that no field asks for could never be given.
  if (names.length > MAX_FIELDS || required.some((name) => !names.includes(name as string))) return null;
  const fields = names.map((name) => toField(name, properties[name]!, required.includes(name)));
  return fields.every((field) => field !== null) ? fields : null;
}

/** Whether a schema asks for more than its own members say. */
function hasOthers(schema: { [name: string]: Json }): boolean {
  return ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties"].some((name) => name in schema);
}

function toField(name: string, schema: Json, isRequired: boolean): FlatField | null {
  if (!isObject(schema) || hasOthers(schema)) return null;
  const choices = "const" in schema ? [schema.const] : schema.enum ?? null;
  if (choices !== null && !isChoices(choices)) return null;
  const type = TYPES.find((one) => one === schema.type) ?? (choices === null ? undefined : typeOf(choices));
  if (type === undefined || (choices === null && schema.type !== type)) return null;
  const given = schema.default ?? null;
  return {
    name,
    title: typeof schema.title === "string" && schema.title !== "" ? schema.title : name,
    description: typeof schema.description === "string" ? schema.description : null,
    type,
    choices,
    format: typeof schema.format === "string" ? schema.format : null,
    isRequired,
    default: isFlatValue(given) ? given : null,
  };
}

function isChoices(choices: Json | undefined): choices is FlatValue[] {
  return Array.isArray(choices) && choices.length > 0 && choices.every(isFlatValue);
}

function typeOf(choices: readonly FlatValue[]): FlatField["type"] {
  const types = new Set(choices.map((choice) => typeof choice));
  const [type] = types;
  return types.size === 1 && (type === "number" || type === "boolean") ? type : "string";
}

function isFlatValue(value: unknown): value is FlatValue {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}

function isObject(value: Json | undefined): value is { [name: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The answers that the metadata of a wait offers: eight at most, those with a label. Empty: it offers none. */
export function actionsOf(metadata: Json): readonly WaitAction[] {
  if (!isObject(metadata) || !Array.isArray(metadata.actions)) return [];
  return metadata.actions.slice(0, MAX_ACTIONS).flatMap((action) =>
    isObject(action) && typeof action.label === "string" && action.label !== ""
      ? [{ label: action.label, payload: action.payload ?? null }]
      : []
  );
}

/** What the metadata of a wait asks: its `message`; `null`: it has none. */
export function messageOf(metadata: Json): string | null {
  return isObject(metadata) && typeof metadata.message === "string" && metadata.message !== ""
    ? metadata.message
    : null;
}
