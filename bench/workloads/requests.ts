import { createEngine, createHandler, defineJob, SqliteStore } from "@holdfast/jobs";
import { benchInput } from "../engines/holdfast.ts";
import { rateFigures, Stopwatch } from "../rate.ts";
import { RawDatabase } from "../raw_database.ts";
import type { Setting } from "../setting.ts";
import type { Measure, Trial, Workload } from "../workload.ts";

const TOGETHER = 100;

/** How fast a server takes triggers that come over sockets. */
export const requests: Workload = {
  name: "requests",
  title: "Triggering runs by HTTP",
  about:
    "One client with kept connections, in the same process as the server, so both share a core. Raw parses the body " +
    "and inserts the run in a transaction of its own: it cannot share the commit of requests that come together.",
  trials: [
    requestTrial("one after another", 1_000, 1),
    requestTrial("100 at once", 5_000, TOGETHER),
  ],
};

type Handle = (request: Request) => Response | Promise<Response>;

function requestTrial(name: string, requests: number, together: number): Trial {
  return {
    name,
    figures: rateFigures("", "a request with its client", []),
    rounds: 5,
    contenders: { raw: raw(requests, together), holdfast: ours(requests, together) },
  };
}

function raw(count: number, together: number): Measure {
  return async (setting) => {
    using database = new RawDatabase(`${setting.folder}/raw.db`);
    const handle: Handle = async (request) => {
      const { jobName, input } = await request.json();
      database.transaction(() => database.insertRun(jobName, JSON.stringify(input)));
      return Response.json({ disposition: "created" });
    };
    return await measure(setting, handle, count, together);
  };
}

function ours(count: number, together: number): Measure {
  return async (setting) => {
    await using store = await SqliteStore.open(`${setting.folder}/jobs.db`);
    const nothing = defineJob({ name: "nothing", input: benchInput, run: () => {} });
    await using engine = createEngine({ store, jobs: { nothing } });
    await engine.migrate();
    return await measure(setting, createHandler(engine).fetch, count, together);
  };
}

/** Returns how many requests a second are answered, and the processor time of each. */
async function measure({ size }: Setting, handle: Handle, requests: number, together: number): Promise<number[]> {
  const count = size(requests, TOGETHER);
  await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handle);
  const url = `http://127.0.0.1:${server.addr.port}/trigger`;
  const send = async (n: number) => {
    const body = JSON.stringify({ jobName: "nothing", input: { n } });
    const response = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body });
    if (!response.ok) throw new Error(`A trigger was answered ${response.status}: ${await response.text()}`);
    await response.json();
  };
  await send(0); // the connection is open, and what is loaded on demand is loaded
  const watch = new Stopwatch();
  for (let done = 0; done < count; done += together) {
    await Promise.all(Array.from({ length: together }, (_, n) => send(done + n)));
  }
  return watch.rate(count);
}
