import assert from "node:assert/strict";
import { ClaimRequests } from "../../src/execution/claim_requests.ts";
import { workerSettings } from "../../src/execution/worker_settings.ts";
import { JobCatalog } from "../../src/job/job_catalog.ts";
import { FakeHost } from "../support/fake_host.ts";
import { echo } from "../support/jobs.ts";

const POLLING_MS = 1_000;

function someRequests() {
  const host = new FakeHost();
  const settings = workerSettings({ pollingInterval: POLLING_MS });
  return { host, requests: new ClaimRequests("worker", new JobCatalog([echo]), settings, host) };
}

function aCapacity({ limit = 10, alwaysOffers = false } = {}) {
  return { executions: [], limit, alwaysOffers };
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

Deno.test("ClaimRequests.next() offers held runs once in each polling interval, and more often if asked to", () => {
  const { host, requests } = someRequests();
  const offers = (capacity = aCapacity()) => {
    const { request } = requests.next(capacity);
    requests.noteAnswer();
    return request.offersHeld;
  };

  const atFirst = offers();
  const soonAfter = offers();
  const asked = offers(aCapacity({ alwaysOffers: true }));
  host.advance(POLLING_MS);
  const later = offers();

  assert.deepEqual([atFirst, soonAfter, asked, later], [true, false, true, true]);
});

Deno.test("ClaimRequests.next() without a free slot offers nothing, and keeps the offer for later", () => {
  const { requests } = someRequests();

  const full = requests.next(aCapacity({ limit: 0, alwaysOffers: true })).request.offersHeld;
  requests.noteAnswer();
  const free = requests.next(aCapacity()).request.offersHeld;

  assert.deepEqual([full, free], [false, true]);
});
