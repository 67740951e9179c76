import { KeyClients } from "./key_client.ts";
import { KEY_MODEL } from "./key_model.ts";
import { judge, type Subject } from "./subject.ts";

/** Idempotency keys, and what is done to the runs that have them. */
export const KEYS: Subject = {
  atOnce: 12,
  async examine({ of, chance, client }) {
    const clients = new KeyClients(of, client, chance);
    await clients.ask(8 + chance.int(16), 2 + chance.int(3));
    return judge(KEY_MODEL, clients.history);
  },
};
