// @ts-check

/** What the server says about this dashboard. @type {{ title: string, traceUrl: string | null, version: string, keepsLogs: boolean }} */
export const options = JSON.parse(document.querySelector("meta[name=holdfast]")?.getAttribute("content") ?? "{}");

/** The theme that was chosen; `""`: that of the system. */
export const theme = {
  get: () => localStorage.getItem("holdfast-theme") ?? "",
  /** @param {string} name */
  set(name) {
    localStorage.setItem("holdfast-theme", name);
    theme.apply();
  },
  apply() {
    document.documentElement.dataset.theme = theme.get();
  },
};

/** Whether single keys are shortcuts (WCAG 2.1.4). */
export const shortcuts = {
  areOn: () => localStorage.getItem("holdfast-keys") !== "off",
  /** @param {boolean} areOn */
  turn: (areOn) => localStorage.setItem("holdfast-keys", areOn ? "on" : "off"),
};
