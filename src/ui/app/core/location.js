// @ts-check
import { useLayoutEffect, useState } from "../vendor/hooks.js";

/**
 * The address of a page inside of the dashboard: `#/runs/<id>?tab=x`.
 * @param {string} path @param {Record<string, unknown>} [query]
 */
export function pageAt(path, query = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") parameters.append(name, String(each));
    }
  }
  const text = String(parameters);
  return `#/${path.split("/").map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
}

/**
 * Goes to a page at once: the browser's own event comes later, and keys that are pressed before would act on the page that
 * is left.
 * @param {string} address
 */
export function goTo(address) {
  location.hash = address;
  dispatchEvent(new Event("hashchange"));
}

/** The current page. */
export function useLocation() {
  const [hash, setHash] = useState(location.hash);
  useLayoutEffect(() => {
    const onChange = () => setHash(location.hash);
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { parts: path.split("/").map(decode), query: new URLSearchParams(query) };
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
