import assert from "node:assert/strict";
import { createEngine, SqliteStore } from "../../mod.ts";
import { Child } from "../processes/child.ts";
import { until } from "../processes/deadline.ts";

const headingOf = async (response: Response) => /<h1>(.*?)<\/h1>/.exec(await response.text())?.[1];

Deno.test("an answer by a link is kept once, though its server is killed before it says so", async () => {
  const folder = await Deno.makeTempDir();
  const database = `${folder}/jobs.db`;
  try {
    await using first = new Child("link_server.ts", database, "asks");
    const { id } = await first.hear("triggered");
    const { link } = await first.hear("sent");
    const path = String(link).replace("http://localhost", "");
    await first.end("SIGKILL");
    await using second = new Child("link_server.ts", database, "dies");
    const { url } = await second.hear("listening");
    const post = (url: unknown, action: string) =>
      fetch(`${url}${path}`, { method: "POST", body: new URLSearchParams({ action }), redirect: "manual" });

    const lost = await post(url, "Yes").then(({ status }) => status, () => "no answer");
    await second.hasEnded();
    await using third = new Child("link_server.ts", database, "serves");
    const { url: again } = await third.hear("listening");
    const reloaded = await fetch(`${again}${path}`);
    const repeated = await post(again, "Yes");
    const changed = await post(again, "No");

    assert.equal(lost, "no answer");
    assert.deepEqual([reloaded.status, await headingOf(reloaded)], [200, "Thank you"]);
    assert.deepEqual([repeated.status, await headingOf(repeated)], [200, "Thank you"]);
    assert.deepEqual([changed.status, await headingOf(changed)], [200, "Thank you"]);
    await using store = await SqliteStore.open(database);
    const engine = createEngine({ store, jobs: {} });
    const read = () => engine.getRun(String(id));
    await until(async () => (await read())?.status === "completed", "the third server was to resume the run");
    const { output } = (await read())!;
    const [wait] = await engine.getWaits(String(id));
    assert.deepEqual((output as { payload: unknown }).payload, true);
    assert.deepEqual([wait!.payload, wait!.signalledBy], [true, "ada"]);
    await third.end("SIGKILL");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
