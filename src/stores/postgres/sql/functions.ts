import { BASICS } from "./basics.ts";

/** All functions of the current version, in an order in which they can be created. */
export const FUNCTIONS: string = [BASICS].join("\n");
