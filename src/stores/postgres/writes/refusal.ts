import { ConflictError, NotFoundError } from "../../../error.ts";

/** Why a write was refused. */
export interface Refusal {
  refused: "conflict" | "not_found" | "lease_lost";
  message: string;
}

/** Whether the answer to a write is a refusal. */
export function isRefusal(answer: unknown): answer is Refusal {
  return typeof answer === "object" && answer !== null && "refused" in answer;
}

/** The error of a refusal; that of a lost lease is the caller's. */
export function toRefusalError({ refused, message }: Refusal): Error {
  return refused === "not_found" ? new NotFoundError(message) : new ConflictError(message);
}
