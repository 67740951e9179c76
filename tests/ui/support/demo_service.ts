import { setTimeout } from "node:timers/promises";
import {
  createEngine,
  createHandler,
  defineJob,
  type HandlerOptions,
  type Json,
  persistLogs,
  SqliteStore,
} from "@holdfast/jobs";
import { dashboard, type DashboardOptions } from "@holdfast/jobs/ui";
import { z } from "zod";

const importCsv = defineJob({
  name: "import-csv",
  input: z.object({ file: z.string(), rows: z.number() }),
  async run(step, { file, rows }) {
    step.log.info(`Importing ${file}`, { rows });
    await step.run("download", () => setTimeout(30, { saved: file }));
    await step.run("validate", ({ attempt }) => {
      step.log.warn("The exchange rates are late");
      if (attempt === 1) throw new Error("The exchange rates did not arrive in time");
    }, { retry: { maxAttempts: 2, delay: 200 } });
    const review = await step.wait("review", {
      timeout: 86_400_000,
      metadata: { file, rows, preview: "https://example.com/preview" },
      schema: z.object({ approved: z.boolean(), note: z.string().optional() }),
    });
    if (review.outcome === "timeout" || !review.payload.approved) throw new Error(`${file} was rejected`);
    await step.run("write", () => setTimeout(20));
    return { rows };
  },
});
const fail = defineJob({
  name: "charge-card",
  input: z.object({ order: z.number() }),
  async run(step, { order }) {
    await step.run("reserve", () => order);
    await step.run("charge", () => {
      if (!services.areUp) throw new Error(`HTTP 402 for order ${order}`);
      return "charged";
    }, { retry: { maxAttempts: 2, delay: 10 } });
  },
});
const quick = defineJob({ name: "resize", input: z.object({ n: z.number() }), run: (_step, { n }) => n });
const manySteps = defineJob({
  name: "many-steps",
  input: z.object({ steps: z.number() }),
  async run(step, { steps }) {
    for (let n = 0; n < steps; n++) await step.run("row", () => n);
  },
});

const askPrice = defineJob({
  name: "ask-price",
  input: z.object({ product: z.string() }),
  async run(step, { product }) {
    const { id } = await step.run("sample", () => ({ id: "01935420-7a3e-7000-8000-000000000001" }));
    const answer = await step.wait("price", {
      metadata: { product, offer: { currency: "EUR", sample: id, sizes: ["S", "M"] } },
      schema: z.object({
        amount: z.number().min(1),
        currency: z.enum(["EUR", "USD"]),
        buyers: z.array(z.string()).optional(),
        reason: z.string().nullable(),
      }),
    });
    return answer.outcome === "signal" ? answer.payload : null;
  },
});
const deepResult = defineJob({
  name: "deep-result",
  input: z.object({ levels: z.number() }),
  run: (_step, { levels }) => {
    let value: Json = Array.from({ length: 300_000 }, () => 0);
    for (let n = 0; n < levels; n++) value = { value };
    return value;
  },
});

const makeClip = defineJob({
  name: "make-clip",
  input: z.object({ n: z.number(), isLicensed: z.boolean() }),
  async run(step, { n, isLicensed }) {
    if (services.extractsFrames) await step.run("extract-frames", () => n);
    await step.run("probe", () => n);
    if (!isLicensed) await step.wait("licence");
    if (n % 100 === 99 && !services.areUp) throw new Error(`No codec for clip ${n}`);
    return n;
  },
});
const makeFilm = defineJob({
  name: "make-film",
  input: z.object({ clips: z.number(), unlicensed: z.number() }),
  async run(step, { clips, unlicensed }) {
    const requests = Array.from({ length: clips }, (_, n) => ({ input: { n, isLicensed: n >= unlicensed } }));
    const results = await step.invokeAll("clips", makeClip, requests);
    const failed = results.filter(({ status }) => status !== "completed").length;
    if (failed > 0) throw new Error(`${failed} clips failed`);
    return results.length;
  },
});

const chat = defineJob({
  name: "chat",
  input: z.object({ room: z.string() }),
  messages: { text: z.object({ text: z.string().min(2), times: z.number().optional() }), stop: z.null() },
  async run(step) {
    for (let said = 0;; said++) {
      const got = await step.receive("next", { names: services.areUp ? ["text", "stop"] : ["stop"] });
      if (got?.name !== "text") return said;
    }
  },
});
const order = defineJob({
  name: "order",
  input: z.object({ order: z.number() }),
  onEnd: {
    statuses: ["failed", "cancelled"],
    async run(_step, end) {
      await end.undo("charge", () => "refunded");
      await end.undo("reserve", () => {
        if (!services.areUp) throw new Error("The warehouse does not answer");
      });
    },
  },
  async run(step, { order }) {
    await step.run("reserve", () => order);
    await step.run("charge", () => order);
    await step.wait("parcel");
  },
});

const write = defineJob({
  name: "write",
  input: z.object({ items: z.number() }),
  async run(step, { items }) {
    await step.run("answer", async ({ stream, attempt }) => {
      for (let n = 1; n <= items; n++) await stream("tokens").write(`attempt ${attempt}, token ${n}. `);
      if (attempt === 1) {
        await services.fails.promise;
        throw new Error("The model has gone away");
      }
    }, { retry: { maxAttempts: 2, delay: 10 } });
    await step.run("rows", ({ stream }) => stream("rows").write({ long: "x".repeat(100_000) }));
  },
});

/** What the jobs depend on. */
export const services = { areUp: false, extractsFrames: false, fails: Promise.withResolvers<void>() };

/** A service with a dashboard, on a database of its own and a free port. */
export class DemoService implements AsyncDisposable {
  readonly #cleanup: AsyncDisposableStack;
  /** The engine that is served. */
  readonly engine;
  /** Where the dashboard is. */
  readonly url: string;

  readonly #server: RestartableServer;

  private constructor(
    cleanup: AsyncDisposableStack,
    engine: ReturnType<typeof engineOn>,
    server: RestartableServer,
    path: string,
  ) {
    this.#cleanup = cleanup;
    this.#server = server;
    this.engine = engine;
    this.url = `http://127.0.0.1:${server.port}${path}`;
  }

  /** Breaks all connections and accepts no new ones while `during` is under way. */
  async whileDown(during: () => Promise<void>): Promise<void> {
    await this.#server.kill();
    await during();
    this.#server.start();
  }

  /**
   * Starts it.
   *
   * @param options.strippedPrefix What a proxy before the handler takes from the path.
   */
  static async start(
    { basePath = "/api/jobs", strippedPrefix = "", ui = {}, handler = {} }: {
      basePath?: string;
      strippedPrefix?: string;
      ui?: DashboardOptions;
      handler?: HandlerOptions;
    } = {},
  ): Promise<DemoService> {
    Object.assign(services, { areUp: false, extractsFrames: false, fails: Promise.withResolvers() });
    const cleanup = new AsyncDisposableStack();
    const folder = await Deno.makeTempDir();
    cleanup.defer(() => Deno.remove(folder, { recursive: true }));
    const store = cleanup.use(await SqliteStore.open(`${folder}/jobs.db`));
    const engine = cleanup.use(engineOn(store));
    const { fetch } = createHandler(engine, { basePath, ui: dashboard(ui), showFailures: true, ...handler });
    const server = new RestartableServer((request) => {
      const url = new URL(request.url);
      if (!url.pathname.startsWith(strippedPrefix)) return new Response(null, { status: 404 });
      url.pathname = url.pathname.slice(strippedPrefix.length);
      return fetch(strippedPrefix === "" ? request : new Request(url, request));
    });
    cleanup.defer(async () => {
      await engine.stop();
      await server.kill();
    });
    return new DemoService(cleanup, engine, server, `${strippedPrefix}${basePath}/ui/`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cleanup.disposeAsync();
  }
}

/** A server that can be killed, and started again on the same port. */
class RestartableServer {
  readonly #handler: (request: Request) => Response | Promise<Response>;
  #connections = new AbortController();
  #server: Deno.HttpServer<Deno.NetAddr>;
  /** Where it listens. */
  readonly port: number;

  constructor(handler: (request: Request) => Response | Promise<Response>) {
    this.#handler = handler;
    this.#server = this.#listen(0);
    this.port = this.#server.addr.port;
  }

  start(): void {
    this.#server = this.#listen(this.port);
  }

  async kill(): Promise<void> {
    this.#connections.abort();
    await this.#server.finished;
  }

  #listen(port: number): Deno.HttpServer<Deno.NetAddr> {
    this.#connections = new AbortController();
    const { signal } = this.#connections;
    return Deno.serve({ hostname: "127.0.0.1", port, signal, onListen: () => {} }, this.#handler);
  }
}

function engineOn(store: SqliteStore) {
  const engine = createEngine({
    store,
    jobs: { importCsv, fail, quick, manySteps, askPrice, deepResult, makeClip, makeFilm, chat, order, write },
    schedules: { nightly: { job: quick, input: { n: 1 }, cron: "0 2 * * *" } },
    worker: { name: "web-1", deployment: "2026.11.22" },
    logger: null,
  });
  engine.use(persistLogs());
  return engine;
}
