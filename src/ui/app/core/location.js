// @ts-check
import { useEffect, useState } from "../vendor/hooks.js";

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

/** @param {string} address */
export function goTo(address) {
  location.hash = address;
}

/** The current page. */
export function useLocation() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
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
