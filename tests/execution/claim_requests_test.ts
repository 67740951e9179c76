import assert from "node:assert/strict";
import { ClaimRequests } from "../../src/execution/claim_requests.ts";
import { workerSettings } from "../../src/execution/worker_settings.ts";
import { JobCatalog } from "../../src/model/job/job_catalog.ts";
import { FakeHost } from "../support/fake_host.ts";
import { echo } from "../support/jobs.ts";

function someRequests() {
  const host = new FakeHost();
  const settings = workerSettings({});
  return { host, requests: new ClaimRequests("worker", new JobCatalog([echo]), settings, host) };
}

function aCapacity({ limit = 10, triesHeld = false } = {}) {
  return { executions: [], limit, triesHeld, isAlone: false };
}

Deno.test("ClaimRequests.next() repeats a claim unchanged until it was answered", () => {
  const { host, requests } = someRequests();
  const first = requests.next(aCapacity({ limit: 10 }));
  host.advance(5_000);

  const repeated = requests.next(aCapacity({ limit: 3 }));
  requests.noteAnswer();
  const second = requests.next(aCapacity({ limit: 3 }));

  assert.equal(repeated, first);
  assert.notEqual(second.request.claimId, first.request.claimId);
  assert.equal(second.request.limit, 3);
  assert.equal(second.sentAt - first.sentAt, 5_000);
});

Deno.test("ClaimRequests.isUnanswered is true from a claim to its answer", () => {
  const { requests } = someRequests();

  const before = requests.isUnanswered;
  requests.next(aCapacity());
  const during = requests.isUnanswered;
  requests.noteAnswer();

  assert.deepEqual([before, during, requests.isUnanswered], [false, true, false]);
});

Deno.test("ClaimRequests.next() asks for 40 runs at most", () => {
  const { requests } = someRequests();

  const { request } = requests.next(aCapacity({ limit: 500 }));

  assert.equal(request.limit, 40);
});

Deno.test("ClaimRequests.next() repeats a claim of held runs that was not answered, whatever is asked next", () => {
  const { requests } = someRequests();
  const tried = requests.next(aCapacity({ triesHeld: true }));

  const repeated = requests.next(aCapacity());
  requests.noteAnswer();
  const next = requests.next(aCapacity());

  assert.equal(repeated, tried);
  assert.deepEqual([tried.request.triesHeld, next.request.triesHeld], [true, false]);
});
