// @ts-check
import { listenForMissingToken, setToken } from "./core/api.js";
import { countOfWaits, number } from "./core/format.js";
import { html } from "./core/html.js";
import { useLocation } from "./core/location.js";
import { options, theme } from "./core/options.js";
import { getWaits, useData } from "./core/use_data.js";
import { Guarded } from "./parts/basics.js";
import { Frame, MorePage, PAGES, Shortcuts } from "./parts/frame.js";
import { JobPage } from "./pages/job.js";
import { JobsPage } from "./pages/jobs.js";
import { OverviewPage } from "./pages/overview.js";
import { RunPage } from "./pages/run.js";
import { RunsPage } from "./pages/runs.js";
import { SchedulesPage } from "./pages/schedules.js";
import { WaitsPage } from "./pages/waits.js";
import { WorkersPage } from "./pages/workers.js";
import { useEffect, useLayoutEffect, useState } from "./vendor/hooks.js";
import { render } from "./vendor/preact.js";

function App() {
  const { parts, query } = useLocation();
  const [isLive, setLive] = useState(true);
  const [token, setTokenState] = useState({ isMissing: false, isRefused: false });
  const [name = "", ...rest] = parts;
  const page = name === "" ? "overview" : name;
  const id = rest.join("/");
  useEffect(() => listenForMissingToken((isMissing, isRefused) => setTokenState({ isMissing, isRefused })), []);
  // Before the next key is read, which may move the focus.
  useLayoutEffect(() => {
    setLive(true);
    const words = PAGES.find(([each]) => each === page)?.[1] ?? "";
    document.title = `${id === "" ? words : id} · ${options.title}`;
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [page, id]);
  if (token.isMissing) return html`<${TokenForm} isRefused=${token.isRefused} />`;
  return html`
    <${Framed} page=${page} isLive=${isLive}>
      <${Guarded} key=${`${page} ${id}`} title="This page">${pageOf(
        page,
        id,
        query,
        setLive,
      )}<//><//><${Guarded}><${Shortcuts} /><//>
  `;
}

/** @param {string} page @param {string} id @param {URLSearchParams} query @param {(isLive: boolean) => void} onLive */
function pageOf(page, id, query, onLive) {
  switch (page) {
    case "overview":
      return html`<${OverviewPage} onLive=${onLive} />`;
    case "runs":
      return id === ""
        ? html`<${RunsPage} query=${query} onLive=${onLive} />`
        : html`<${RunPage} key=${id} runId=${id} onLive=${onLive} />`;
    case "jobs":
      return id === "" ? html`<${JobsPage} />` : html`<${JobPage} key=${id} jobName=${id} />`;
    case "waits":
      return html`<${WaitsPage} />`;
    case "schedules":
      return html`<${SchedulesPage} />`;
    case "workers":
      return html`<${WorkersPage} />`;
    case "more":
      return html`<${MorePage} />`;
    default:
      return html`
        <h1>There is no such page</h1>
        <p><a href="#/">Overview</a></p>
      `;
  }
}

/** @param {{ page: string, isLive: boolean, children?: any }} props */
function Framed({ page, isLive, children }) {
  const { data: waits } = useData("waits/open", {}, 15_000, getWaits);
  const { data: workers } = useData("workers", {}, 15_000);
  const badges = {
    waits: { data: waits, count: countOfWaits, words: "open" },
    workers: { data: workers, count: countOfLost, words: "lost", isAlert: true },
  };
  return html`<${Frame} page=${page} isLive=${isLive} badges=${badges}>${children}<//>`;
}

/** @param {any[]} workers */
const countOfLost = (workers) => number(workers.filter(({ state }) => state === "lost").length);

/** @param {{ isRefused: boolean }} props */
function TokenForm({ isRefused }) {
  const [text, setText] = useState("");
  const [isKept, keep] = useState(false);
  const [isWrong, setWrong] = useState(false);
  const enter = (/** @type {Event} */ event) => {
    event.preventDefault();
    setWrong(!setToken(text.trim(), isKept));
  };
  return html`
    <main id="main" class="token">
      <h1>${options.title}</h1>
      <form class="panel pad stack tight"
        onSubmit=${enter}><label class="field">Bearer token<input type="password" autocomplete="off" required value=${text} onInput=${(
          /** @type {any} */ event,
        ) =>
          setText(
            event.target.value,
          )} /></label>${(isWrong || isRefused) &&
          html`<p class="problem" role="alert">${
            isWrong
              ? "This token has a character that cannot be sent, perhaps an invisible one: copy it again"
              : "The server refused this token"
          }</p>`}<label class="check"><input type="checkbox" checked=${isKept} onChange=${(
          /** @type {any} */ event,
        ) =>
          keep(
            event.target.checked,
          )} /> Keep it until this tab is closed</label><div class="buttons"><button class="primary">Open</button></div></form>
    </main>
  `;
}

theme.apply();
render(
  html`
    <${Guarded} title="The dashboard">
      <${App} />
      <//>
  `,
  document.body,
);
