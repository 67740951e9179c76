import { BASICS } from "./basics.ts";
import { READS } from "./reads/functions.ts";

/** All functions of the current version, in an order in which they can be created. */
export const FUNCTIONS: string = [BASICS, READS].join("\n");
