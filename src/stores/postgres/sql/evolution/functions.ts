import { HISTORIES } from "./histories.ts";
import { HOLDS } from "./holds.ts";

/** The functions for changes of the code. */
export const EVOLUTION: string = [HOLDS, HISTORIES].join("\n");
