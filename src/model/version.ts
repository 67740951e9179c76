/** The version of this package, as in deno.json. */
export const PACKAGE_VERSION = "0.1.0";
