import assert from "node:assert/strict";
import { Chance } from "../../support/chance.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aGuardedService, allRoutes, assertTidy, assertWell, MEMBERS } from "../../support/http/hostile.ts";
import { aRequest, type Asked, aWaitingRun } from "../../support/http/http.ts";

/** Requests at random, of words that mean something to somebody. */
class Mischief {
  readonly #chance: Chance;
  readonly #ids: readonly string[];

  constructor(seed: number, ids: readonly string[]) {
    this.#chance = new Chance(seed);
    this.#ids = ids;
  }

  request(): [method: string, path: string, asked: Asked] {
    const chance = this.#chance;
    const methods = ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"];
    const path = chance.happens(0.9) ? chance.pick(allRoutes)[1].path : `/${this.#word()}`;
    const route = allRoutes.find(([, route]) => route.path === path)?.[1];
    const method = route !== undefined && chance.happens(0.8) ? route.method : chance.pick(methods);
    const names = [
      "runId",
      "waitId",
      "limit",
      "offset",
      "status",
      "jobName",
      "from",
      `label.${this.#word()}`,
      this.#word(),
    ];
    const parameters = Array.from({ length: chance.int(5) }, () => `${chance.pick(names)}=${this.#word()}`);
    const body = ["GET", "HEAD"].includes(method) || chance.happens(0.1) ? {} : { body: this.#body() };
    return [method, `${path}?runId=${this.#id()}&${parameters.join("&")}`.slice(0, 5_000), {
      ...body,
      headers: this.#headers(),
    }];
  }

  #word(): string {
    const odd = [
      "",
      "0",
      "-1",
      "1e9",
      "x".repeat(300),
      "%00",
      "%ff",
      "%",
      "..%2f",
      "💩",
      "'--",
      "null",
      "failed",
      "a=b",
    ];
    return this.#chance.pick([...MEMBERS, ...odd, ...this.#ids, "echo", "approval", "start", "failure"]);
  }

  #id(): string {
    return this.#chance.happens(0.7) ? this.#chance.pick(this.#ids) : this.#word();
  }

  #value(depth = 0): string {
    const chance = this.#chance;
    const scalars = ["null", "true", "0", "-0", "1e999", "1e-999", '""', '"\\ud800"', '"\\u0000"', "[]", "{}"];
    if (depth > 3 || chance.happens(0.5)) return chance.pick([...scalars, JSON.stringify(this.#word())]);
    const inner = () => this.#value(depth + 1);
    if (chance.happens(0.3)) return `[${inner()},${inner()}]`;
    return `{${JSON.stringify(this.#word())}:${inner()},${JSON.stringify(this.#word())}:${inner()}}`;
  }

  #body(): string {
    const chance = this.#chance;
    const good: Record<string, string> = {
      jobName: '"echo"',
      input: '{"n":1}',
      signalId: '"s"',
      payload: "1",
      labels: '{"org":"a"}',
      concurrencyKey: '"k"',
      idempotencyKey: '"i"',
      coalesce: '"active"',
    };
    const fields = Object.entries(good).filter(() => chance.happens(0.9)).map(([name, value]) =>
      `${JSON.stringify(chance.happens(0.05) ? this.#word() : name)}:${chance.happens(0.2) ? this.#value() : value}`
    );
    const text = `{${fields.join()}}`;
    return chance.happens(0.05) ? text.slice(0, chance.int(text.length)) : text;
  }

  #headers(): Record<string, string> {
    const names = ["content-type", "content-encoding", "content-length", "origin", "sec-fetch-site", "host", "range"];
    const values = ["", "identity", "gzip", "null", "same-origin", "cross-site", "http://localhost", "5", "1e9", "a,b"];
    if (this.#chance.happens(0.8)) return {};
    return { [this.#chance.pick(names)]: this.#chance.pick(values) };
  }
}

for (const seed of [1, 2, 3]) {
  forEachStore(
    `fetch() answers 4xx or does what was asked, whatever mischief ${seed} comes up with`,
    async (context) => {
      await using service = aGuardedService({}, context);
      const { runId, waitId } = await aWaitingRun(service);
      const { id } = await service.engine.trigger("echo", {}, { labels: { org: "a" } });
      const mischief = new Mischief(seed, [runId, waitId, id]);
      const statuses = new Set<number>();

      for (let n = 0; n < 400; n++) {
        const request = mischief.request();
        const response = await service.handler.fetch(aRequest(...request));
        const { status, headers } = response;
        statuses.add(status);
        if (headers.get("content-type") === "text/event-stream") await response.body!.cancel();
        else {
          const body = await response.json();
          assert.ok(status < 500, JSON.stringify({ n, request, body }));
          assertTidy({ status, headers, body });
        }
        if (n % 50 === 0) await service.engine.runUntilIdle();
      }

      assert.deepEqual(service.heard, []);
      for (const status of [200, 400, 404, 405]) assert.ok(statuses.has(status), `no ${status}`);
      await assertWell(service);
    },
  );
}
