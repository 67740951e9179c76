// @ts-check
import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

/** Makes elements from a template: values become text, never markup. */
export const html = htm.bind(h);
