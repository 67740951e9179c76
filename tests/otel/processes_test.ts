import assert from "node:assert/strict";
import { Child } from "../processes/child.ts";
import { until } from "../processes/deadline.ts";
import { Collector } from "./processes/collector.ts";

const PROGRAM = new URL("processes/traced_program.ts", import.meta.url).href;

Deno.test("one trace leads from a request over a wait, a signal, a kill, a retry and a child to the end", async () => {
  await using collector = new Collector();
  const folder = await Deno.makeTempDir();
  const start = (role: string) => new Child({ file: PROGRAM, env: collector.env }, `${folder}/jobs.db`, role);
  try {
    await using server = start("serve");
    const { port } = await server.hear("ready");
    const call = async (path: string, body?: object) => {
      const init = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
      const response = await fetch(`http://127.0.0.1:${port}${path}`, init);
      assert.equal(response.status, 200);
      return await response.json();
    };
    await using first = start("work");
    await first.hear("ready");

    const { runId } = await call("/trigger", { jobName: "order", input: {} });
    const hasStatus = async (status: string) => (await call(`/run?runId=${runId}`)).status === status;
    await until(async () => (await call(`/waits?runId=${runId}`)).length === 1, "the run was to wait");
    const [wait] = await call(`/waits?runId=${runId}`);
    await call(`/signal?runId=${runId}&waitId=${wait.id}`, { signalId: "s", payload: null });
    await first.hear("slow");
    // What was not exported yet dies with the process.
    await collector.named("process order", 2);
    await collector.named("sleep nap");
    await first.end("SIGKILL");
    await using second = start("work");
    await until(() => hasStatus("completed"), "the second worker was to end the run");

    const last = () =>
      collector.spans.filter(({ name, attributes }) =>
        name === "process order" && attributes["holdfast.outcome"] === "completed"
      );
    await until(() => last().length === 1, "the collector was to get the last execution");
    const [create] = await collector.named("create order");
    const requests = collector.spans.filter(({ spanId }) => spanId === create!.parentSpanId);
    assert.equal(requests.length, 1);
    assert.equal(requests[0]!.kind, 2); // a server span, of Deno

    const executions = await collector.named("process order", 4);
    const outcomes = executions.map(({ attributes }) => attributes["holdfast.outcome"]);
    const [signal] = await collector.named("signal review");
    const [createChild] = await collector.named("create ship");
    const [child] = await collector.named("process ship");
    const [pack] = await collector.named("step pack");
    const charges = await collector.named("step charge", 2);
    const [slow] = await collector.named("step slow");
    // The execution that was killed is missing. So is the run's second pause in its trace: it was resumed by it.
    assert.deepEqual(outcomes, ["waiting", "waiting", "waiting", "completed"]);
    assert.equal(new Set(executions.map(({ attributes }) => attributes["holdfast.worker.id"])).size, 2);
    for (
      const span of [...executions, ...await collector.named("wait review"), ...await collector.named("sleep nap")]
    ) {
      assert.equal(span.parentSpanId, create!.spanId, span.name);
    }
    const [before, after, recovered] = executions;
    assert.deepEqual(executions.map(({ links }) => links), [[], [signal!.spanId], [], []]);
    assert.deepEqual(charges.map((span) => [span.parentSpanId, span.attributes["error.type"]]), [
      [before!.spanId, "RangeError"],
      [before!.spanId, undefined],
    ]);
    assert.notEqual(after!.spanId, recovered!.spanId);
    assert.equal(Number(recovered!.attributes["holdfast.run.execution"]), 2);
    assert.deepEqual([slow!, createChild!].map(({ parentSpanId }) => parentSpanId), [
      recovered!.spanId,
      recovered!.spanId,
    ]);
    assert.equal(child!.parentSpanId, createChild!.spanId);
    assert.equal(pack!.parentSpanId, child!.spanId);
    const spans = [requests[0]!, create!, ...executions, ...charges, slow!, createChild!, child!, pack!];
    assert.equal(new Set(spans.map(({ traceId }) => traceId)).size, 1);
    await until(() => collector.metrics.has("holdfast.run.duration"), "the collector was to get metrics");
    await second.end("SIGKILL");
    await server.end("SIGKILL");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
