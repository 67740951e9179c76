// Needs JSR: `deno task test:jsr`.
import { assertEquals } from "@std/assert";
import { STATUS_CODE } from "@std/http/status";
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
