import assert from "node:assert/strict";
import { addedBy, narrow, narrowList, readScope } from "../../../src/http/access/list_scope.ts";
import { CONDITION_LIST, matches, type RunFilter } from "../../../src/model/run.ts";
import { aService } from "../../support/http/http.ts";

const NARROWED: [filter: RunFilter, scope: RunFilter, both: RunFilter][] = [
  [{}, {}, { limit: 50 }],
  [{ jobName: "a" }, {}, { jobName: "a", limit: 50 }],
  [{}, { jobName: ["a", "b"] }, { jobName: ["a", "b"], limit: 50 }],
  [{ jobName: ["a", "b"] }, { jobName: ["b", "c"] }, { jobName: ["b"], limit: 50 }],
  [{ jobName: "a" }, { jobName: "b" }, { jobName: [], limit: 50 }],
  [{ status: "failed" }, { status: ["failed", "waiting"] }, { status: ["failed"], limit: 50 }],
  [{ status: "failed" }, { status: [] }, { status: [], limit: 50 }],
  [{ labels: { team: "x" } }, { labels: { org: "a" } }, { labels: { team: "x", org: "a" }, limit: 50 }],
  [{ labels: { org: "a" } }, { labels: { org: "a" } }, { labels: { org: "a" }, limit: 50 }],
  [{ limit: 10 }, { limit: 20 }, { limit: 10 }],
  [{ limit: 20 }, { limit: 10 }, { limit: 10 }],
  [{ limit: 1_000 }, {}, { limit: 1_000 }],
  [{}, { limit: 1_000 }, { limit: 50 }],
  [{ limit: 0 }, { limit: 10 }, { limit: 0 }],
  [{ offset: 7 }, { offset: 0 }, { offset: 7, limit: 50 }],
];

for (const [filter, scope, both] of NARROWED) {
  Deno.test(`narrow() of ${JSON.stringify(filter)} and ${JSON.stringify(scope)} is what both allow`, () => {
    const narrowed = narrow(filter, readScope(scope));

    assert.deepEqual(given(narrowed), { labels: {}, ...both });
  });
}

for (const { name, by, values = ["one", "other"] } of CONDITION_LIST) {
  const instants = ["2040-01-01T00:00:00.000Z", "2041-01-01T00:00:00.000Z"];
  const [early, late] = by === "is" ? values : by === "has" ? [true, false] : instants;
  const ofScope = { is: late, from: late, until: early, has: late }[by];
  const isSingle = by === "is" || by === "has";

  Deno.test(`narrow() keeps ${name} of a scope, whatever the client asks for`, () => {
    const scope = readScope({ [name]: ofScope });
    const asked = by === "until" ? late : early;

    assert.equal(narrow({}, scope)[name], ofScope);
    assert.equal(narrow({ [name]: ofScope }, scope)[name], ofScope);
    const narrowed = narrow({ [name]: asked }, scope);

    if (isSingle) assert.deepEqual(narrowed.jobName, []);
    else assert.equal(narrowed[name], ofScope);
  });

  Deno.test(`narrow() keeps ${name} of a client that asks for less than its scope`, () => {
    const asked = by === "until" ? early : late;

    assert.equal(narrow({ [name]: asked }, readScope({}))[name], asked);
    if (!isSingle) {
      assert.equal(narrow({ [name]: asked }, readScope({ [name]: by === "from" ? early : late }))[name], asked);
    }
  });

  Deno.test(`readScope() refuses a ${name} of another type`, () => {
    assert.throws(() => readScope({ [name]: 7 }));
    assert.throws(() => readScope({ [name]: null }));
  });
}

for (const [key, value, other] of [["org", "b", "a"], ["__proto__", "x", "y"], ["constructor", "x", "y"]] as const) {
  Deno.test(`narrow() lets no run match that would need two values of the label ${key}`, () => {
    const filter = { labels: Object.fromEntries([[key, value]]) };
    const scope = readScope({ labels: Object.fromEntries([[key, other]]) });

    for (const narrowed of [narrow(filter, scope), narrowList(filter, scope)]) {
      for (const one of [value, other]) {
        assert.equal(matches({ jobName: "job", labels: Object.fromEntries([[key, one]]) }, narrowed), false);
      }
    }
  });
}

Deno.test("narrow() lets no run match that would need more labels than a run can have", () => {
  const filter = { labels: Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`k${n}`, "v"])) };
  const labels = { ...filter.labels, org: "a" };

  const narrowed = narrow(filter, readScope({ labels: { org: "a" } }));

  assert.equal(matches({ jobName: "job", labels }, narrowed), false);
  assert.ok(Object.keys(narrowed.labels ?? {}).length <= 64);
});

Deno.test("narrowList() keeps jobs and labels, and nothing else", () => {
  const narrowed = narrowList(
    { labels: { team: "x" } },
    readScope({ labels: { org: "a" }, status: "failed", limit: 1 }),
  );

  assert.deepEqual(given(narrowed), { labels: { team: "x", org: "a" } });
});

const ADDED: [scope: RunFilter, filter: RunFilter, added: unknown][] = [
  [{}, {}, null],
  [{ labels: { org: "a" } }, {}, { labels: ["org"], jobs: false }],
  [{ labels: { 1: "x", org: "a" } }, { labels: { 1: "x" } }, { labels: ["org"], jobs: false }],
  [{ labels: { org: "a" } }, { labels: { org: "a" } }, null],
  [JSON.parse('{"labels":{"__proto__":"a"}}'), { labels: {} }, { labels: ["__proto__"], jobs: false }],
  [{ jobName: "a" }, {}, { labels: [], jobs: true }],
  [{ jobName: ["a"] }, { jobName: "a" }, null],
  [{ jobName: ["a", "b"] }, { jobName: "a" }, { labels: [], jobs: true }],
  [{ status: "failed", limit: 5 }, {}, null],
];

for (const [scope, filter, added] of ADDED) {
  Deno.test(`addedBy() of ${JSON.stringify(scope)} to ${JSON.stringify(filter)} is ${JSON.stringify(added)}`, () => {
    assert.deepEqual(addedBy(readScope(scope), filter), added);
  });
}

const NO_SCOPES: unknown[] = [
  undefined,
  null,
  true,
  "org",
  7,
  [],
  [{ labels: {} }],
  () => ({}),
  new Map([["labels", { org: "a" }]]),
  new Error("no"),
  { label: { org: "a" } },
  { labels: new Map([["org", "a"]]) },
  { labels: Object.create({ org: "a" }) },
  { jobName: new Set(["a"]) },
  { status: { length: 0 } },
  { labels: "org" },
  { labels: null },
  { labels: { org: undefined } },
  { labels: { org: null } },
  { labels: { org: 1 } },
  { labels: { "an org": "a" } },
  { jobName: "" },
  { jobName: [7] },
  { status: "done" },
  { limit: -1 },
  { limit: 0.5 },
  { limit: NaN },
  { limit: "many" },
  { limit: null },
];

for (const answer of NO_SCOPES) {
  Deno.test(`readScope() refuses ${typeof answer === "function" ? "a function" : JSON.stringify(answer) ?? "nothing"}`, () => {
    assert.throws(() => readScope(answer));
  });
}

Deno.test("readScope() takes more labels than a run can have: the client's may be among them", () => {
  const labels = Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`k${n}`, "v"]));

  assert.deepEqual(readScope({ labels }).labels, labels);
});

Deno.test("readScope() copies what it is given", () => {
  const answer = { jobName: ["a"], labels: { org: "a" } };

  const scope = readScope(answer);
  answer.jobName.push("b");
  answer.labels.org = "b";

  assert.deepEqual(given(scope), { jobName: ["a"], labels: { org: "a" } });
});

Deno.test("readScope() takes a limit that no list can reach", () => {
  assert.equal(narrow({ limit: 1_000 }, readScope({ limit: 5_000 })).limit, 1_000);
  assert.equal(narrow({}, readScope({ limit: Infinity })).limit, 50);
});

/** What of a filter restricts. */
function given(filter: RunFilter): RunFilter {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined));
}

for (const scope of [{ jobName: [] }, { status: [] }] as const) {
  Deno.test(`GET /runs shows nothing to a caller whose scope is ${JSON.stringify(scope)}`, async () => {
    await using service = aService({ auth: { authenticate: () => "somebody", scopeRuns: () => scope } });
    await service.engine.trigger("echo", {});

    const { status, body } = await service.ask("GET", "/runs");

    assert.deepEqual([status, body], [200, { runs: [], total: 0, hasMore: false }]);
  });
}
