import assert from "node:assert/strict";
import type { Engine } from "../../../src/engine/engine.ts";
import { persistLogs } from "../../../src/engine/plugin.ts";
import { HoldfastError, type Issue } from "../../../src/model/error.ts";
import { uuidV7 } from "../../../src/model/host.ts";
import { createHandler, type Handler } from "../../../src/http/handler.ts";
import type { Store } from "../../../src/store/store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { EventReader } from "../../support/http/event_reader.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest } from "../../support/fixtures.ts";
import { aRequest } from "../../support/http/http.ts";
import { type Action, isRequest, type RequestAction, toQuery, toRequest, type TriggerBody } from "./action.ts";
import { checkForm, type RawAnswer } from "./check_form.ts";
import { fuzzJobs } from "./jobs.ts";
import { LEASE_MS } from "./model.ts";
import { type Naming, type Tenant, tenantAuth, TOKEN } from "./tenants.ts";
import { createEngine } from "../../support/quiet_engine.ts";

/** The stores that a world can have. */
export const STORE_NAMES = ["MemoryStore", "SqliteStore"] as const;

/** The name of a store. */
export type StoreName = typeof STORE_NAMES[number];

/** Under which path a world serves. */
export const BASE_PATH = "/api/jobs";

/** What an action has come to: of a refusal only the code, and of what has an id of its own all but that. */
export interface Answer {
  status: number;
  // deno-lint-ignore no-explicit-any -- it is compared, or looked into
  body: any;
  /** The body as it was sent. */
  text: string;
}

const TICK_MS = 10;

/** A service for two tenants, over a store and in a time of its own. */
export class World implements AsyncDisposable {
  readonly host = new FakeHost();
  readonly engine: Engine;
  readonly handler: Handler;
  /** What `onError` and `worker:error` have told: nothing, unless something is wrong. */
  readonly errors: unknown[] = [];
  /** Those who watch lists. */
  readonly listeners: { by: Tenant; action: Extract<Action, { kind: "listen" }>; reader: EventReader }[] = [];
  readonly #store: Store;

  private constructor(store: Store, host: FakeHost, naming: Naming) {
    this.host = host;
    this.#store = store;
    this.engine = createEngine({ store, host, jobs: fuzzJobs, worker: { maxAbandonments: 1_000 } }) as Engine;
    this.engine.use(persistLogs());
    this.engine.on("worker:error", ({ error }) => this.errors.push(error));
    this.handler = createHandler(this.engine, {
      host,
      basePath: BASE_PATH,
      auth: tenantAuth(naming),
      onError: (error) => void this.errors.push(error),
    });
  }

  /** Makes one in which nothing has happened. */
  static async open(name: StoreName, naming: Naming): Promise<World> {
    const host = new FakeHost();
    const store = name === "MemoryStore" ? new MemoryStore({ host }) : await SqliteStore.open(":memory:", { host });
    await store.migrate();
    return new World(store, host, naming);
  }

  /** Ends everything. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const { reader } of this.listeners) await reader.leave();
    await this.engine.stop();
    await this.#store.close();
  }

  /** Does something. */
  async perform(action: Action): Promise<Answer> {
    if (isRequest(action)) return await this.#ask(action);
    switch (action.kind) {
      case "house":
        return await this.#trigger(action.body);
      case "listen": {
        const path = `/runs/subscribe?${toQuery(action.query)}`;
        const response = await this.handler.fetch(aRequest("GET", BASE_PATH + path, { headers: tokenOf(action.by) }));
        assert.equal(response.status, 200);
        this.listeners.push({ by: action.by, action, reader: new EventReader(response) });
        await this.host.settle();
        return ok(null);
      }
      case "work": {
        const { executed } = await this.engine.runUntilIdle();
        await this.host.settle();
        return ok({ executed });
      }
      case "crash": {
        const workerId = uuidV7(this.host.now());
        const jobNames = Object.keys(fuzzJobs);
        const request = { workerId, jobNames, limit: 1, leaseMs: LEASE_MS, maxAbandonments: 1_000 };
        const { claims: [claim] } = await this.#store.claim(aClaimRequest(request));
        if (claim !== undefined) return ok(claim.run.id);
        const alone = await this.#store.claim(
          aClaimRequest({ ...request, claimId: uuidV7(this.host.now()), isAlone: true }),
        );
        return ok(alone.claims[0]?.run.id ?? null);
      }
      case "pass":
        this.host.advance(action.ms);
        await this.host.settle();
        return ok(null);
    }
  }

  /**
   * Waits for something, and lets time pass if it does not come without.
   *
   * @throws {Error} It has not come after so many milliseconds.
   */
  async within<T>(ms: number, work: Promise<T>): Promise<T> {
    let hasCome = false;
    const done = work.finally(() => hasCome = true);
    done.catch(() => {}); // is looked at below
    for (let passed = 0; !hasCome; passed += TICK_MS) {
      if (passed > ms) throw new Error(`Something has not come to an end after ${ms} ms`);
      await this.host.settle();
      if (!hasCome) this.host.advance(TICK_MS);
    }
    return await done;
  }

  async #ask(action: RequestAction): Promise<Answer> {
    const { method, path, body } = toRequest(action);
    const request = aRequest(method, BASE_PATH + path, {
      headers: tokenOf(action.by),
      ...(body === undefined ? {} : { body }),
    });
    const response = await this.handler.fetch(request);
    if (action.kind === "subscribe" && response.status === 200) return await this.#readStream(response, action.runId);
    const raw: RawAnswer = { status: response.status, headers: response.headers, text: await response.text() };
    checkForm(action.kind, raw);
    const { status, text } = raw;
    return { status, text, body: status === 200 ? withoutOwnIds(action, JSON.parse(text)) : codeOf(JSON.parse(text)) };
  }

  async #readStream(response: Response, runId: string): Promise<Answer> {
    await using reader = new EventReader(response);
    await this.host.settle();
    for (const event of reader.events) assert.equal(event.runId, runId);
    return ok({ types: [...reader.types], isEnded: reader.isEnded });
  }

  async #trigger({ jobName, input, ...options }: TriggerBody): Promise<Answer> {
    try {
      const { id: runId, disposition, status } = await this.engine.trigger(jobName, input, options);
      return ok({ runId, disposition, status });
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      return { status: error.code === "not_found" ? 404 : 400, body: { code: error.code }, text: "" };
    }
  }
}

function tokenOf(tenant: Tenant): Record<string, string> {
  return { [TOKEN]: tenant };
}

function ok(body: unknown): Answer {
  return { status: 200, body, text: "" };
}

function codeOf({ code }: { code: string; issues?: Issue[] }): { code: string } {
  return { code };
}

/** Steps and lines of logs have ids that lead nowhere. */
function withoutOwnIds({ kind }: RequestAction, body: unknown): unknown {
  if (kind !== "steps" && kind !== "logs") return body;
  return (body as { id: string }[]).map(({ id: _, ...rest }) => rest);
}
