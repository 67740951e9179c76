// The handler behind the router of jsr:@std/http. `deno task test:jsr` runs it, and needs jsr.io; `tests/long/jsr_test.ts`
// runs it without, over stand-ins.
import { assertEquals } from "@std/assert";
import { STATUS_CODE } from "@std/http/status";
import { route } from "@std/http/unstable-route";
import { createEngine, createHandler, defineJob, MemoryStore } from "@holdfast/jobs";
import { z } from "zod";

const double = defineJob({
  name: "double",
  input: z.object({ value: z.number() }),
  run: (step, { value }) => step.run("double", () => value * 2),
});

Deno.test("createHandler() answers with the status codes of HTTP", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: { double } });
  const { fetch } = createHandler(engine, { basePath: "/api/jobs" });
  const ask = async (method: string, path: string, body?: unknown) => {
    const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
    const response = await fetch(new Request(`http://localhost/api/jobs${path}`, init));
    await response.body?.cancel();
    return response.status;
  };

  const statuses = [
    await ask("POST", "/trigger", { jobName: "double", input: { value: 21 } }),
    await ask("POST", "/trigger", { jobName: "double", input: { value: "many" } }),
    await ask("GET", "/run?runId=none"),
    await ask("PUT", "/run?runId=none"),
  ];

  assertEquals(statuses, [
    STATUS_CODE.OK,
    STATUS_CODE.BadRequest,
    STATUS_CODE.NotFound,
    STATUS_CODE.MethodNotAllowed,
  ]);
});

Deno.test("createHandler() works behind route() of @std/http, which leaves all its paths to it", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: { double } });
  const handler = createHandler(engine, { basePath: "/api/jobs" });
  const app = route([
    { pattern: new URLPattern({ pathname: "/about" }), method: "GET", handler: () => new Response("about") },
    // Not as `handler: handler.fetch`: the router passes more arguments than the request.
    { pattern: new URLPattern({ pathname: "/api/jobs/*" }), handler: (request) => handler.fetch(request) },
  ], () => new Response("nothing", { status: 404 }));
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, app);
  const base = `http://127.0.0.1:${server.addr.port}`;
  await engine.start();

  const about = await (await fetch(`${base}/about`)).text();
  const triggered = await fetch(`${base}/api/jobs/trigger`, {
    method: "POST",
    body: JSON.stringify({ jobName: "double", input: { value: 21 } }),
  });
  const { runId } = await triggered.json();
  const events = await (await fetch(`${base}/api/jobs/subscribe?runId=${runId}`)).text();
  const run = await (await fetch(`${base}/api/jobs/run?runId=${runId}`)).json();
  const wrongMethod = await fetch(`${base}/api/jobs/trigger`);
  await wrongMethod.body?.cancel();
  const elsewhere = await (await fetch(`${base}/api/job`)).text();

  assertEquals([about, elsewhere], ["about", "nothing"]);
  assertEquals([run.status, run.output], ["completed", 42]);
  assertEquals(events.includes('"type":"run:complete"'), true);
  assertEquals([wrongMethod.status, wrongMethod.headers.get("allow")], [STATUS_CODE.MethodNotAllowed, "POST"]);
  await engine.stop();
  await server.shutdown();
});
