import assert from "node:assert/strict";
import { callCli } from "./call_cli.ts";
import { aFile, aServer, fill } from "./places.ts";
import { getRun } from "../../src/store/reads.ts";

/** The dashboard of a database, which the command serves until it is disposed. */
async function serveUi(args: readonly string[]) {
  const end = new AbortController();
  const address = Promise.withResolvers<string>();
  const done = callCli(["ui", ...args], { abortSignal: end.signal, onLine: address.resolve });
  const url = new URL(await Promise.race([address.promise, done.then(({ notes }) => assert.fail(notes.join("\n")))]));
  return {
    origin: url.origin,
    token: url.hash.slice(1),
    async stop() {
      end.abort();
      return await done;
    },
  };
}

/** What a server answers to a request that is written by hand. */
async function sendRaw(origin: string, lines: readonly string[]): Promise<string> {
  const { hostname, port } = new URL(origin);
  using connection = await Deno.connect({ hostname, port: Number(port) });
  await connection.write(new TextEncoder().encode([...lines, "Connection: close", "", ""].join("\r\n")));
  return await new Response(connection.readable).text();
}

Deno.test("holdfast ui serves the dashboard of a SQLite file to the one who has its address", async () => {
  await using file = await aFile();
  const { failed } = await fill(file.store);
  const { origin, token, stop } = await serveUi([file.path]);
  const headers = { authorization: `Bearer ${token}` };

  const opening = await fetch(`${origin}/`);
  const script = await fetch(`${origin}/open.js`);
  const page = await fetch(`${origin}/ui/`);
  const shown = await fetch(`${origin}/failure?runId=${failed}`, { headers });
  const retried = await fetch(`${origin}/retrigger?runId=${failed}&from=failure`, { method: "POST", headers });
  const { runId } = await retried.json();
  const again = await fetch(`${origin}/retrigger?runId=${failed}`, { method: "POST", headers });
  const stream = await fetch(`${origin}/subscribe?runId=${runId}`, { headers });
  const { code, notes } = await stop();

  assert.match(origin, /^http:\/\/127\.0\.0\.1:\d+$/);
  assert.ok(token.length >= 43, token);
  assert.deepEqual([opening.status, opening.headers.get("referrer-policy")], [200, "no-referrer"]);
  assert.match(await opening.text(), /<script src="open\.js">/);
  assert.match(await script.text(), /sessionStorage\.setItem\("holdfast-token"/);
  assert.deepEqual([page.status, (await page.text()).includes("Holdfast")], [200, true]);
  assert.match((await shown.json()).run.stack, /ConnectionRefused/);
  assert.deepEqual([retried.status, again.status, (await again.json()).runId], [200, 200, runId]);
  assert.equal((await getRun(file.store, failed))?.retriggeredAs, runId);
  assert.equal(stream.headers.get("content-type"), "text/event-stream");
  await stream.text().catch(() => {}); // it has ended with the command
  assert.deepEqual([code, notes], [0, ["Only this address opens the dashboard: it has a token. Ctrl-C ends it"]]);
  await assert.rejects(fetch(`${origin}/`));
});

Deno.test("holdfast ui shows and changes nothing without its token, for another host, or for a page of another site", async () => {
  await using file = await aFile();
  const { waiting } = await fill(file.store);
  const { origin, token, stop } = await serveUi([file.path]);
  const { host } = new URL(origin);
  const authorization = `Authorization: Bearer ${token}`;

  const refused = [];
  for (const sent of [undefined, "", "Bearer", `Bearer ${token.slice(1)}`, `Bearer ${token}x`, token]) {
    for (const path of ["/runs", "/stats", `/run?runId=${waiting}`, "/metrics", "/health", "/nothing"]) {
      const response = await fetch(`${origin}${path}`, sent === undefined ? {} : { headers: { authorization: sent } });
      refused.push(response.status);
      await response.body?.cancel();
    }
  }
  const cancel = `POST /cancel?runId=${waiting} HTTP/1.1`;
  const rebound = await sendRaw(origin, [cancel, "Host: evil.example", "Content-Length: 0", authorization]);
  const rebuilt = await sendRaw(origin, [`GET //evil.example/stats HTTP/1.1`, `Host: ${host}`]);
  const foreign = await sendRaw(origin, [
    cancel,
    `Host: ${host}`,
    "Content-Length: 0",
    "Origin: http://evil.example",
    authorization,
  ]);
  await stop();

  assert.deepEqual([...new Set(refused)], [401]);
  assert.match(rebound, /^HTTP\/1\.1 421 /);
  assert.match(rebuilt, /^HTTP\/1\.1 401 /);
  assert.match(foreign, /^HTTP\/1\.1 403 /);
  assert.equal((await getRun(file.store, waiting))?.status, "waiting");
});

Deno.test("holdfast ui serves its own page in a browser that sends an Origin alone", async () => {
  await using file = await aFile();
  const { waiting } = await fill(file.store);
  const { origin, token, stop } = await serveUi([file.path]);
  const { port } = new URL(origin);

  const answers = [];
  for (const host of [`127.0.0.1:${port}`, `localhost:${port}`]) {
    const headers = [`Host: ${host}`, `Origin: http://${host}`, "Content-Length: 0", `Authorization: Bearer ${token}`];
    answers.push(await sendRaw(origin, [`POST /cancel?runId=${waiting} HTTP/1.1`, ...headers]));
  }
  await stop();

  assert.match(answers[0]!, /^HTTP\/1\.1 200 /);
  assert.match(answers[1]!, /^HTTP\/1\.1 409 /);
  assert.equal((await getRun(file.store, waiting))?.status, "cancelled");
});

Deno.test("holdfast ui is for a database, which it takes as its argument or as --store", async () => {
  await using file = await aFile();
  await using server = await aServer(file.store);
  const { origin, stop } = await serveUi(file.args);

  const [service, twice, port, taken, none] = await Promise.all([
    callCli(["ui", ...server.args]),
    callCli(["ui", file.path, ...file.args]),
    callCli(["ui", file.path, "--port", "65536"]),
    callCli(["ui", file.path, "--port", new URL(origin).port]),
    callCli(["ui", `${file.path}.none`]),
  ]);
  const { code } = await stop();

  assert.deepEqual([service, twice, port, taken, none].map((called) => called.code), [2, 2, 2, 2, 3]);
  assert.match(service.notes[0]!, /^ui is for a database/);
  assert.match(taken.notes[0]!, /^Cannot listen on 127\.0\.0\.1:\d+: /);
  assert.equal(code, 0);
});

Deno.test("a command does not show the password of a Postgres address, whatever is wrong with it", async () => {
  const addresses = ["u:secret@[bad/db", "u:sec/secret@h/db", "u:secret@127.0.0.1:1/db", "u:secret@h:port/db"];

  const answers = await Promise.all(addresses.map((address) => callCli(["ui", `postgres://${address}`])));

  assert.deepEqual(answers.map(({ code }) => code), [2, 2, 3, 2]);
  for (const { lines, notes } of answers) assert.doesNotMatch([...lines, ...notes].join("\n"), /sec/);
});
