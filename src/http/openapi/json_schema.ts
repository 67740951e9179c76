import type { Condition } from "../../model/run.ts";
import type { Words } from "../../values/option_names.ts";

/** A schema of JSON Schema 2020-12, as OpenAPI 3.1 has it. */
export type JsonSchema = { readonly [keyword: string]: unknown };

const OPTIONAL = Symbol("optional"); // JSON has no symbols

/** A schema of a field that may be left out. */
export function optional(schema: JsonSchema): JsonSchema {
  return { ...schema, [OPTIONAL]: true } as JsonSchema;
}

/** Several fields of one schema, whose names are listed with spaces between. */
export function fields<const Names extends string>(
  schema: JsonSchema,
  names: Names,
): { readonly [Name in Words<Names>]: JsonSchema } {
  return Object.fromEntries(names.split(" ").map((name) => [name, schema])) as { [Name in Words<Names>]: JsonSchema };
}

/** The schema of an object of type `T`: it compiles only if each field of `T` is described, and no other. */
export function objectOf<T extends object>(): <Fields extends { readonly [Name in keyof T]-?: JsonSchema }>(
  properties: Fields & { readonly [Name in Exclude<keyof Fields, keyof T>]: never },
) => JsonSchema {
  return (properties) => {
    const required = Object.entries<JsonSchema>(properties).filter(([, schema]) => !(OPTIONAL in schema));
    return {
      type: "object",
      properties,
      ...(required.length === 0 ? {} : { required: required.map(([name]) => name) }),
    };
  };
}

/** The schema of a list. */
export function listOf(items: JsonSchema): JsonSchema {
  return { type: "array", items };
}

/** A schema that also allows `null`. */
export function orNull(schema: JsonSchema): JsonSchema {
  return typeof schema.type === "string" && schema.enum === undefined
    ? { ...schema, type: [schema.type, "null"] }
    : { anyOf: [schema, { type: "null" }] };
}

/** A reference to a schema of the document. */
export function ref(name: string): JsonSchema {
  return { $ref: `#/components/schemas/${name}` };
}

/** The schema of some strings. */
export function oneOf(values: readonly string[]): JsonSchema {
  return { type: "string", enum: values };
}

/** The schema of what a condition of a filter takes. */
export function conditionSchema({ by, values }: Condition): JsonSchema {
  if (by === "has") return FLAG;
  return by !== "is" ? INSTANT : values === undefined ? TEXT : oneOf(values);
}

/** Any JSON value. */
export const ANY: JsonSchema = {};
/** A string. */
export const TEXT: JsonSchema = { type: "string" };
/** A boolean. */
export const FLAG: JsonSchema = { type: "boolean" };
/** An integer from 0 on. */
export const COUNT: JsonSchema = { type: "integer", minimum: 0 };
/** A number. */
export const NUMBER: JsonSchema = { type: "number" };
/** An instant. */
export const INSTANT: JsonSchema = { type: "string", format: "date-time" };
/** Labels. */
export const LABELS: JsonSchema = { type: "object", additionalProperties: { type: "string" } };
