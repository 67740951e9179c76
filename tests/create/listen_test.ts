import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { listen } from "../../templates/listen.ts";

/** What a server answers to a request that is written by hand. */
async function sendRaw(port: number, lines: readonly string[]): Promise<string> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  await connection.write(new TextEncoder().encode([...lines, "Connection: close", "", ""].join("\r\n")));
  return await new Response(connection.readable).text();
}

for (
  const [what, lines] of [
    ["the method TRACE", ["TRACE / HTTP/1.1", "Host: localhost"]],
    ["an address that is not valid", ["GET http://:x/ HTTP/1.1", "Host: localhost"]],
    ["a host that is not valid", ["GET / HTTP/1.1", "Host: a b"]],
  ] as const
) {
  Deno.test(`the server of an app for Node answers 400 to ${what}, and serves the next request`, async () => {
    const server = await listen(() => Promise.resolve(new Response("served")), { port: 0, hostname: "127.0.0.1" });
    const { port } = server.address() as AddressInfo;

    const refused = await sendRaw(port, lines);
    const served = await fetch(`http://127.0.0.1:${port}/`);

    const text = await served.text();
    server.closeAllConnections();
    server.close();
    await once(server, "close");
    assert.match(refused, /^HTTP\/1\.1 400 /);
    assert.equal(text, "served");
  });
}
