import assert from "node:assert/strict";
import { checkForm } from "./check_form.ts";
import { expectWild } from "./expect_wild.ts";
import { type StoreName, World } from "./world.ts";
import { toWildRequest, type WildRequest } from "./wild_request.ts";

/** How long a body may take, in milliseconds, and a little more. */
const BODY_MS = 10_100;
const SECRET = "nobody but b may see this";

/** A service with runs of two tenants, of which one sends wild requests. */
export class WildService implements AsyncDisposable {
  readonly #world: World;
  /** What placeholders stand for. */
  readonly #names: Record<string, string> = { tenant: "a" };
  #untouched = "";

  private constructor(world: World) {
    this.#world = world;
  }

  /** Opens one in which each tenant has a run in each state that lasts. */
  static async open(store: StoreName): Promise<WildService> {
    const service = new WildService(await World.open(store, "named"));
    await service.#fill();
    return service;
  }

  /** Ends everything. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#world[Symbol.asyncDispose]();
  }

  /**
   * Sends a request, and looks at the answer.
   *
   * @throws {Error} It is none that the contract allows: the message shows it.
   */
  async send(wild: WildRequest): Promise<void> {
    const request = toWildRequest(wild, this.#names);
    if (request === null) return;
    const { route, statuses, code } = expectWild(wild, request);
    const respond = this.#world.handler[wild.through as "fetch"];
    const response = await this.#world.within(BODY_MS, respond(request));
    const isStream = response.headers.get("content-type") === "text/event-stream";
    const text = isStream ? "" : await response.text();
    if (isStream) await response.body!.cancel();
    try {
      assert.ok(statuses.includes(response.status), `expected ${statuses.join(" or ")}`);
      checkForm(route, { status: response.status, headers: response.headers, text });
      if (code !== undefined) assert.equal(JSON.parse(text).code, code);
      assert.ok(!text.includes(SECRET), "it tells of a run of somebody else");
      assert.deepEqual(this.#world.errors, []);
    } catch (error) {
      const asked = `${wild.through}: ${request.method} ${request.url.slice(0, 300)}`;
      const { message } = error as Error;
      throw new Error(`${asked} -> ${response.status} ${text.slice(0, 300)}\n${message}`, { cause: error });
    }
  }

  /** Checks that whoever did not ask for anything still has what they had, and that the service goes on. */
  async checkUntouched(): Promise<void> {
    assert.equal(await this.#dumpForeign(), this.#untouched);
    assert.deepEqual(Object.keys(Object.prototype), []);
    assert.equal(({} as { polluted?: number }).polluted, undefined);
    const answer = await this.#world.perform({
      kind: "trigger",
      by: "a",
      body: { jobName: "echo", input: {}, labels: { org: "a" } },
    });
    assert.deepEqual([answer.status, answer.body.disposition], [200, "created"]);
  }

  async #fill(): Promise<void> {
    const { engine } = this.#world;
    for (const org of ["a", "b"]) {
      const input = { text: org === "a" ? "anybody" : SECRET };
      const labels = { org };
      const ids = {
        completed: (await engine.trigger("echo", input, { labels })).id,
        failed: (await engine.trigger("fail", input, { labels, idempotencyKey: `of ${org}` })).id,
        waiting: (await engine.trigger("approval", input, { labels })).id,
      };
      await engine.runUntilIdle();
      const pending = await engine.trigger("echo", input, { labels, concurrencyKey: "line" });
      const [wait] = await engine.getWaits(ids.waiting);
      if (org === "a") Object.assign(this.#names, ids, { pending: pending.id, wait: wait!.id });
      else Object.assign(this.#names, { "foreign": ids.waiting, "foreign wait": wait!.id });
    }
    this.#untouched = await this.#dumpForeign();
  }

  async #dumpForeign(): Promise<string> {
    const { engine } = this.#world;
    const { runs } = await engine.getRuns({ labels: { org: "b" }, limit: 1_000 });
    const waits = await engine.getWaits(this.#names.foreign!);
    return JSON.stringify({ runs, waits });
  }
}
