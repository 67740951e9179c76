/**
 * Loads a module that imports packages which only `bench/deno.json` names: other engines. Since its path is computed, such
 * a package is downloaded with the module, and never with the rest of the project.
 *
 * @param path From this folder.
 */
export function loadOther<T>(path: string): Promise<T> {
  return import(new URL(path, import.meta.url).href);
}
