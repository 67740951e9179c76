import assert from "node:assert/strict";
import { aService } from "../../support/http/http.ts";

const NEARLY: [path: string, parameter: string, meant: string][] = [
  ["/runs", "job_name=echo", "jobName"],
  ["/runs", "jobname=echo", "jobName"],
  ["/runs", "JobName=echo", "jobName"],
  ["/runs", "jobNames=echo", "jobName"],
  ["/runs", "statuss=failed", "status"],
  ["/runs", "staus=failed", "status"],
  ["/runs", "sattus=failed", "status"],
  ["/runs", "statuses=failed", "status"],
  ["/runs", "limits=5", "limit"],
  ["/runs", "label=org:acme", "label.<key>"],
  ["/runs", "labels.org=acme", "label.org"],
  ["/runs", "Label.team.lead=ada", "label.team.lead"],
  ["/run", "run_id=1", "runId"],
  ["/wait", "runId=1&waitID=2", "waitId"],
  ["/runs/subscribe", "last-event-id=1", "lastEventId"],
];

for (const [path, parameter, meant] of NEARLY) {
  Deno.test(`GET ${path}?${parameter} is refused: ${meant} is meant`, async () => {
    await using service = aService();

    const { status, body } = await service.ask("GET", `${path}?${parameter}`);

    assert.deepEqual([status, body.code], [400, "invalid_request"]);
    assert.ok(body.error.endsWith(`: did you mean "${meant}"?`), body.error);
  });
}

Deno.test("parameters that have no known name nearby are ignored", async () => {
  await using service = aService();
  const query = "_=1&token=a&page=2&label.job_name=a&__proto__=1&constructor.x=1&.=1&=1&stat=1";

  const { status } = await service.ask("GET", `/runs?${query}`);

  assert.equal(status, 200);
});

Deno.test("a parameter of another route is ignored", async () => {
  await using service = aService();

  const statuses = await Promise.all(
    ["/jobs?run_id=1", "/schedules?jobname=a", "/stats?label=a"].map((path) => service.ask("GET", path)),
  );

  assert.deepEqual(statuses.map(({ status }) => status), [200, 200, 200]);
});
