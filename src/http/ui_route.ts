import { NotFoundError } from "../error.ts";
import type { HandlerUi } from "./handler_options.ts";
import type { Route } from "./route.ts";

const PREFIX = "/ui";

/** Whether a path is one of the dashboard. */
export function isUiPath(path: string): boolean {
  return path === PREFIX || path.startsWith(`${PREFIX}/`);
}

/** The route of a file of the dashboard. Files hold no data, so the host can open them to everybody. */
export function uiRoute(ui: HandlerUi, path: string): Route {
  return {
    method: "GET",
    path,
    part: "ui",
    async answer({ operator }) {
      await operator.checkUi();
      const response = ui.respond(path.slice(PREFIX.length));
      if (response === null) throw new NotFoundError("There is no such file");
      return response;
    },
  };
}
