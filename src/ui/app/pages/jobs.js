// @ts-check
import { html } from "../core/html.js";
import { useData } from "../core/use_data.js";
import { Problem } from "../parts/basics.js";
import { JobTable } from "../parts/job_table.js";

/** All jobs. */
export function JobsPage() {
  const { data, error } = useData("jobs");
  return html`
    <div class="head"><h1>Jobs</h1><span class="muted small">rates of the last hour</span></div>
    <${Problem} error=${error} />
    <section class="panel" aria-label="List of jobs">${data !== null &&
      html`<${JobTable} jobs=${data} window="1h" hasBars=${false} />`}</section>
  `;
}
