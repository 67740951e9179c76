import { playChildHistories } from "../child_histories.ts";
import { openSubject } from "./open_subject.ts";
import { startServer } from "./server.ts";

const server = startServer();
const SEEDS = [1, 2];

Deno.test({
  name: "MemoryStore and PostgresStore answer the same to histories of parents and children, and strand none",
  ignore: server === null,
  fn: async () => void await playChildHistories(SEEDS, openSubject(server!)), // ignored without a server
});
