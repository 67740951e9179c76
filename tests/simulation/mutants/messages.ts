import { ConflictError } from "../../../src/model/error.ts";
import { getRun } from "../../../src/store/reads.ts";
import type { PauseRecord } from "../../../src/model/wait.ts";
import type { SendRequest } from "../../../src/store/send_request.ts";
import type { Plan } from "../plan.ts";
import { double, over } from "./doubles.ts";
import type { Mutant } from "./mutant.ts";

/** Bugs of messages, of inboxes that close, and of keys that end. */
export const MESSAGE_MUTANTS: readonly Mutant[] = [
  {
    name: "a message is stored as unread although a receive waits for it",
    rule: "the first open receive that takes a message takes it",
    database: (store, database) =>
      double(store, {
        send: async (request) => {
          const hide = "UPDATE holdfast_pauses SET status = 'hidden' WHERE kind = 'receive' AND status = 'pending'";
          database.exec(hide);
          const sending = store.send(request);
          await sending.catch(() => {});
          database.exec("UPDATE holdfast_pauses SET status = 'pending' WHERE status = 'hidden'");
          return await sending;
        },
      }),
  },
  {
    name: "a receive takes messages without marking them",
    rule: "no two receives take one message",
    database: (store, database) =>
      double(store, {
        pause: async (lease, request) => {
          const result = await store.pause(lease, request);
          database.exec(
            `UPDATE holdfast_messages SET pause_seq = NULL
             WHERE run_seq = (SELECT seq FROM holdfast_runs WHERE id = '${lease.runId}')`,
          );
          return result;
        },
      }),
  },
  {
    name: "messages come in another order when they are taken",
    rule: "a receive has its messages in the order in which they were accepted",
    store: over((store) => ({
      pause: async (lease, request) => {
        const result = await store.pause(lease, request);
        return { ...result, pauses: result.pauses.map(turned) };
      },
    })),
  },
  {
    name: "the name of a message is not compared",
    rule: "a receive takes messages of its names",
    store: over((store) => ({
      pause: (lease, request) =>
        store.pause(lease, {
          ...request,
          pauses: request.pauses.map((pause) =>
            pause.receive === undefined
              ? pause
              : { ...pause, receive: { ...pause.receive, names: ["m-a", "m-b", "m-c"] } }
          ),
        }),
    })),
  },
  {
    name: "a receive takes one message more than it may",
    rule: "a receive takes at most `max` messages",
    store: over((store) => ({
      pause: (lease, request) =>
        store.pause(lease, {
          ...request,
          pauses: request.pauses.map((pause) =>
            pause.receive === undefined
              ? pause
              : { ...pause, receive: { ...pause.receive, max: pause.receive.max + 1 } }
          ),
        }),
    })),
  },
  {
    name: "a receive forgets to close the inbox",
    rule: "the commit of a timeout closes the inbox",
    store: over((store) => ({
      pause: (lease, request) =>
        store.pause(lease, {
          ...request,
          pauses: request.pauses.map((pause) =>
            pause.receive === undefined ? pause : { ...pause, receive: { ...pause.receive, close: null } }
          ),
        }),
    })),
  },
  {
    name: "a repeated message is another one",
    rule: "the same id with the same name and payload is a duplicate",
    store: over((store, chance) => ({
      send: (request) => store.send(withId(request, `${request.message.id} ${chance.int(1e9)}`)),
    })),
  },
  {
    name: "a message with the id of another one is a duplicate",
    rule: "another message with an id that is taken is refused",
    store: over((store) => ({
      send: async (request) => {
        const { to } = request;
        try {
          return await store.send(request);
        } catch (error) {
          if (!(error instanceof ConflictError) || error.code !== "conflict" || !("runId" in to)) throw error;
          const run = (await getRun(store, to.runId))!; // the store has just found it
          return { run, disposition: "duplicate", started: null };
        }
      },
    })),
  },
  {
    name: "a run that has ended accepts messages",
    rule: "a run that has ended refuses",
    store: over((store) => ({
      send: async (request) => {
        const { to } = request;
        try {
          return await store.send(request);
        } catch (error) {
          if (!(error instanceof ConflictError) || error.code !== "run_ended" || !("runId" in to)) throw error;
          const run = (await getRun(store, to.runId))!;
          return { run, disposition: "accepted", started: null };
        }
      },
    })),
  },
  {
    name: "a message is answered and not stored",
    rule: "accepted is stored",
    store: over((store, chance) => ({
      send: async (request) => {
        if (!("runId" in request.to) || chance.happens(0.8)) return await store.send(request);
        const run = await getRun(store, request.to.runId);
        if (run === null) return await store.send(request);
        return { run, disposition: "accepted", started: null };
      },
    })),
  },
  {
    name: "a message is received with another payload",
    rule: "a program is given what was sent",
    store: over((store) => ({
      send: (request) => store.send({ ...request, message: { ...request.message, input: '"another"' } }),
    })),
  },
  {
    name: "a key is taken from a run that counts",
    from: 7,
    rule: "at most one run of a key counts",
    store: over((store) => ({
      enqueue: (runs) =>
        store.enqueue(runs.map((run) => run.idempotencyUntil === undefined ? run : { ...run, idempotencyUntil: 1 })),
    })),
  },
  {
    name: "a key stays with a run that has ended",
    rule: "a run that does not count loses the key",
    plan: (plan) => ({ ...plan, requests: plan.requests.map(untilEnded) }),
    store: over((store) => ({
      enqueue: (runs) => store.enqueue(runs.map(({ idempotencyUntil: _, ...run }) => run)),
    })),
  },
  {
    name: "a retry begins without its messages",
    rule: "the inbox goes with the retry",
    database: (store, database) =>
      double(store, {
        enqueue: async (runs) => {
          const added = await store.enqueue(runs);
          for (const { retriggerOf, id } of runs) {
            if (retriggerOf === null) continue;
            database.exec(
              `DELETE FROM holdfast_messages WHERE run_seq = (SELECT seq FROM holdfast_runs WHERE id = '${id}')`,
            );
          }
          return added;
        },
      }),
  },
  {
    name: "a retry receives again what a copied receive took",
    rule: "what a copied receive took is taken",
    database: (store, database) =>
      double(store, {
        enqueue: async (runs) => {
          const added = await store.enqueue(runs);
          for (const { retriggerOf, id } of runs) {
            if (retriggerOf === null) continue;
            database.exec(
              `UPDATE holdfast_messages SET pause_seq = NULL
               WHERE run_seq = (SELECT seq FROM holdfast_runs WHERE id = '${id}')`,
            );
          }
          return added;
        },
      }),
  },
  {
    name: "the list of messages leaves the received ones out",
    rule: "each accepted message is in its run",
    store: over((store) => ({
      readMessages: async (runId, after, maxLength) => {
        const part = await store.readMessages(runId, after, maxLength);
        return part && { ...part, items: part.items.filter(({ status }) => status !== "received") };
      },
    })),
  },
];

function withId(request: SendRequest, id: string): SendRequest {
  return { ...request, message: { ...request.message, id } };
}

/** A trigger for which runs of its key count until they have ended. */
function untilEnded(planned: Plan["requests"][number]): Plan["requests"][number] {
  const { request } = planned;
  if (request.ask !== "trigger") return planned;
  const options = { ...request.options, idempotencyKey: "same-0", idempotencyUntil: "ended" as const };
  return { ...planned, request: { ...request, options } };
}

function turned(pause: PauseRecord): PauseRecord {
  return pause.messages === undefined ? pause : { ...pause, messages: pause.messages.toReversed() };
}
