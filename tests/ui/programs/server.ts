// A service with a dashboard, which may read no files: it prints its address.
import { createEngine, createHandler, MemoryStore } from "@holdfast/jobs";
import { dashboard } from "@holdfast/jobs/ui";

const engine = createEngine({ store: new MemoryStore(), jobs: {} });
const { fetch } = createHandler(engine, { ui: dashboard() });
const onListen = ({ port }: Deno.NetAddr) => console.log(`http://127.0.0.1:${port}/ui/`);
Deno.serve({ hostname: "127.0.0.1", port: 0, onListen }, fetch);
