import assert from "node:assert/strict";
import { Webhook } from "standardwebhooks";
import { createEngine, SqliteStore } from "../../mod.ts";
import { signedLinks } from "../../src/links/mod.ts";
import { aRequest } from "../mcp/stateless_client.ts";
import { Child } from "../processes/child.ts";
import { until } from "../processes/deadline.ts";
import { refund } from "../processes/refund.ts";
import { Chance } from "../support/chance.ts";

const KEY = "the key of the links of all processes";
const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/** What only organization b may see. */
const HIDDEN = "an order of b";
const KILLS = 5;
const REQUESTS_A_LIFE = 500;
const AT_ONCE = 8;

/** Sends bytes as they are, and reads what comes back until the server closes; empty if it was killed. */
async function sendRaw(port: number, text: string): Promise<string> {
  try {
    using connection = await Deno.connect({ hostname: "127.0.0.1", port });
    await connection.write(new TextEncoder().encode(text));
    await connection.closeWrite(); // a server that waits for more is told that there is none
    let received = "";
    const buffer = new Uint8Array(65_536);
    for (let count; (count = await connection.read(buffer)) !== null;) {
      received += new TextDecoder().decode(buffer.subarray(0, count));
    }
    return received;
  } catch {
    return "";
  }
}

/** A request as text, with fields that `Headers` would join or refuse. */
function rawRequest(method: string, path: string, fields: readonly string[], body: string): string {
  return [`${method} ${path} HTTP/1.1`, "Host: localhost", "Connection: close", ...fields, "", body].join("\r\n");
}

Deno.test("who attacks every edge of a server that is killed again and again finds no error, and nothing of others", async () => {
  const folder = await Deno.makeTempDir();
  const database = `${folder}/jobs.db`;
  const chance = new Chance(41, "edges");
  const signer = new Webhook(SECRET);
  /** The ids of webhooks that were signed, and of those that were acknowledged. */
  const signed: { id: string; headers: Record<string, string>; body: string }[] = [];
  const acknowledged = new Set<string>();
  const statuses = new Map<number, number>();
  try {
    await using store = await SqliteStore.open(database);
    const engine = createEngine({ store, jobs: { refund } });
    const ask = async (org: string) => {
      const { id } = await engine.jobs.refund.trigger({ order: `an order of ${org}` }, { labels: { org } });
      await engine.runUntilIdle();
      return { id, wait: (await engine.getWaits(id))[0]! };
    };
    const [mine, theirs] = [await ask("a"), await ask("b")];
    const links = signedLinks({ keys: [KEY], url: "http://localhost" });
    const forger = signedLinks({ keys: [`${KEY}, nearly`], url: "http://localhost" });
    const own = (await links.toWait(mine.wait)).replace("http://localhost", "");
    const forged = (await forger.toWait(theirs.wait)).replace("http://localhost", "");
    const readTheirs = async () => JSON.stringify([await engine.getRun(theirs.id), await engine.getWaits(theirs.id)]);
    const before = await readTheirs();

    const words = ["", "x", "__proto__", "constructor", "\u0000", "\ud800", "🙈", "' OR 1=1 --", "a".repeat(3_000)];
    const ids = [theirs.id, theirs.wait.id, "00000000-0000-7000-8000-000000000000"];
    const anything = (depth = 3): unknown => {
      const kind = depth === 0 ? 0 : chance.int(5);
      if (kind < 2) return chance.pick([...words, ...ids, null, true, -1, 1e308, 0.1]);
      if (kind === 2) return Array.from({ length: chance.int(3) }, () => anything(depth - 1));
      const names = [...words, "runId", "waitId", "approve", "action", "content", "approved", "payload"];
      return Object.fromEntries(
        Array.from({ length: chance.int(4) }, () => [chance.pick(names), anything(depth - 1)]),
      );
    };
    const tools = ["list_runs", "get_run", "explain_run", "list_failures", "retry_run", "cancel_run", "answer_wait"];
    const callTool = () => ({
      name: chance.pick(["refund", ...tools]),
      arguments: chance.pick([
        anything(),
        { runId: theirs.id, waitId: theirs.wait.id, payload: { approved: true } },
        { runId: theirs.id },
        { jobName: "refund", status: "waiting" },
        { runId: mine.id, waitId: theirs.wait.id, payload: { approved: true } },
      ]),
    });
    const task = () => ({
      taskId: chance.pick([theirs.id, ...words.slice(0, 3)]),
      inputResponses: chance.pick([anything(), { approve: { action: "accept", content: { approved: true } } }]),
    });
    const atMcp = (port: number) => {
      const method = chance.pick([
        "tools/call",
        "tools/call",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "tools/list",
      ]);
      const params = method === "tools/call" ? callTool() : method.startsWith("tasks/") ? task() : {};
      const named = Object.values(params)[0];
      const name = typeof named === "string" && /^[\w-]*$/.test(named) ? named : "other";
      const request = aRequest(`http://127.0.0.1:${port}/mcp`, method, params, {
        headers: { "x-org": chance.pick(["a", "a", "a", "b, a", "c"]), "mcp-name": name },
      });
      return fetch(request);
    };
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    const atMcpWithAnything = (port: number) =>
      fetch(`http://127.0.0.1:${port}/mcp`, {
        method: "POST",
        headers: { "x-org": "a" },
        body: chance.pick([
          JSON.stringify({ jsonrpc: "2.0", id: anything(1), method: chance.pick(words), params: anything() }),
          `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${nested(chance.pick([60, 70, 100_000]))}}`,
          `{"jsonrpc":"2.0","id":1,"method":"tools/list","__proto__":{"params":{}},"id":2}`,
          "x".repeat(1_100_000),
        ]),
      });
    const atLink = (port: number) => {
      const path = chance.pick([own, forged, `${own.slice(0, -2)}AA`, `${own}&t=x`, "/link?t=" + "a.".repeat(900)]);
      const action = chance.pick(["yes", "__proto__", "f0=x"]);
      const url = `http://127.0.0.1:${port}${path}`;
      if (chance.happens(0.3)) return fetch(url);
      const f0 = chance.pick(["", "maybe", "1", "\u0000"]);
      const body = new URLSearchParams({ action, f0, f1: chance.pick(words) });
      return fetch(url, { method: "POST", redirect: "manual", body });
    };
    const atTick = (port: number) =>
      fetch(
        `http://127.0.0.1:${port}/tick?timeout=${chance.pick(["1000", "-1", "1e9", "", "NaN", "99999999999", "0"])}`,
        {
          method: "POST",
          headers: { "x-org": chance.pick(["a", "z"]) },
        },
      );
    const atWebhook = async (port: number) => {
      const isNew = signed.length === 0 || chance.happens(0.4);
      if (isNew) {
        const id = `msg_${signed.length}`;
        const body = JSON.stringify({ type: "paid", data: anything() });
        const signature = signer.sign(id, new Date(), body);
        const timestamp = `${Math.floor(Date.now() / 1_000)}`;
        signed.push({
          id,
          body,
          headers: { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature },
        });
      }
      const sent = isNew ? signed.at(-1)! : chance.pick(signed);
      const changes: Record<string, string>[] = [
        {},
        {},
        { "webhook-id": `${sent.id}0` },
        { "webhook-id": `${sent.id}, ${sent.id}` },
        { "webhook-timestamp": "0" },
        { "webhook-timestamp": `${sent.headers["webhook-timestamp"]}.0` },
        { "webhook-signature": `${sent.headers["webhook-signature"]}=` },
        { "webhook-signature": "v1," + "A".repeat(43) + "=" },
      ];
      const change = isNew ? {} : chance.pick(changes);
      const isRight = Object.keys(change).length === 0;
      const response = await fetch(`http://127.0.0.1:${port}/webhook`, {
        method: "POST",
        headers: { ...sent.headers, ...change },
        body: isRight || chance.happens(0.5) ? sent.body : `${sent.body} `,
      });
      if (response.status === 204) {
        assert.ok(isRight, `accepted with ${JSON.stringify(change)}`);
        acknowledged.add(sent.id);
      } else assert.ok(!isRight, `a right webhook was answered ${response.status}`);
      return response;
    };
    const atSocket = async (port: number): Promise<Response> => {
      const body = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';
      const fields = chance.pick([
        [`Content-Length: ${body.length}`, "x-org: a", "x-org: b"],
        [`Content-Length: ${body.length}`, `Content-Length: ${body.length + 1}`, "x-org: a"],
        ["Transfer-Encoding: chunked", `Content-Length: ${body.length}`, "x-org: a"],
        ["Content-Length: 99999999999999999999", "x-org: a"],
        ["x-org: a", "Content-Length: -1"],
        ["x-org:\u0000b", `Content-Length: ${body.length}`],
        [`Content-Length: ${body.length}`, "x-org: a", "MCP-Protocol-Version: 2025-06-18", "mcp-protocol-version: x"],
      ]);
      const path = chance.pick([
        "/mcp",
        "//mcp",
        "/mcp/",
        "/MCP",
        "http://b/mcp",
        "/link?t=%ff",
        "/tick",
        "/webhook",
        "*",
      ]);
      const received = await sendRaw(port, rawRequest("POST", path, fields, body));
      const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(received)?.[1] ?? 400); // none: the connection was ended
      return new Response(received, { status });
    };
    const edges = [atMcp, atMcp, atMcpWithAnything, atLink, atTick, atWebhook, atWebhook, atSocket];

    for (let life = 0; life <= KILLS; life++) {
      await using server = new Child("edge_server.ts", database, KEY, SECRET);
      const port = Number((await server.hear("listening")).port);
      let left = REQUESTS_A_LIFE;
      let isKilled = false;
      const attack = async () => {
        while (!isKilled && left-- > 0) {
          const edge = chance.pick(edges);
          const read = async (response: Response) => ({ status: response.status, text: await response.text() });
          const answer = await edge(port).then(read).catch((error) => {
            // Whether a request was handled whose server is killed is not known.
            if (isKilled && !(error instanceof assert.AssertionError)) return null;
            throw error;
          });
          if (answer === null) return;
          statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
          assert.ok(answer.status < 500, `${edge.name}: ${answer.status} ${answer.text.slice(0, 300)}`);
          assert.ok(!answer.text.includes(HIDDEN), `${edge.name} shows ${HIDDEN}: ${answer.text.slice(0, 300)}`);
          if (life < KILLS && left < REQUESTS_A_LIFE / 4 && !isKilled) {
            isKilled = true;
            server.signal("SIGKILL");
          }
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, attack));
      if (life < KILLS) continue;
      const counted = async () => (await engine.getRuns({ jobName: "payment", status: "completed", limit: 0 })).total;
      await until(async () => (await counted()) >= acknowledged.size, "each payment was to complete");
      await server.end("SIGKILL");
    }

    const { runs, total } = await engine.getRuns({ jobName: "payment", limit: 1_000 });
    const paid = runs.map(({ payload }) => (payload as { id: string }).id);
    assert.equal(total, new Set(paid).size, "no webhook makes two runs");
    assert.deepEqual([...acknowledged].filter((id) => !paid.includes(id)), [], "what was acknowledged is kept");
    assert.deepEqual(paid.filter((id) => !signed.some((one) => one.id === id)), [], "only what was signed makes a run");
    assert.equal(await readTheirs(), before);
    assert.equal((await engine.getWaits(mine.id))[0]!.status, "pending");
    assert.ok(acknowledged.size > 50 && [200, 400, 401, 404, 413, 422].every((status) => statuses.has(status)));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
