import { z } from "zod";
import type { StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import { type LinkOptions, type SignedLinks, signedLinks } from "../../../src/links/signed_links.ts";
import { aRequest, aService, type Service } from "./http.ts";
import { anything, type StoreTest } from "../stores/for_each_store.ts";

/** A key of links. */
export const LINK_KEY = "a key of links for the tests, 2026";

/** The fields that the job `form` asks for. */
export const FORM = z.object({
  approved: z.boolean(),
  cents: z.int().max(10_000),
  reason: z.enum(["damaged", "late"]).optional(),
  note: z.string().max(20).optional(),
}).refine(({ approved, reason }) => approved || reason !== undefined, {
  path: ["reason"],
  message: "is needed to refuse",
});

const ACTIONS = [{ label: "Refund", payload: { ok: true } }, { label: "Refuse", payload: { ok: false } }];

/** A service with jobs that send links: `ask` with two actions, `form` with fields. */
export interface LinkedService extends Service {
  /** The links. */
  links: SignedLinks;
  /** The links that were sent, as paths. */
  sent: string[];
  /** Triggers a run of a job, and returns its id and the path of the link that it has sent. */
  ask1(job: "ask" | "form", input?: unknown): Promise<{ id: string; path: string }>;
  /** Opens a page as a browser does. */
  open(path: string, method?: string, headers?: Record<string, string>): Promise<Page>;
  /** Sends its form. */
  post(path: string, fields: Record<string, string>, headers?: Record<string, string>): Promise<Page>;
}

/** A page. */
export interface Page {
  /** The status. */
  status: number;
  /** The headers. */
  headers: Headers;
  /** The HTML. */
  html: string;
  /** The heading. */
  heading: string;
}

/** Makes a service whose jobs send links. */
export function aLinkedService<Context>(
  world: StoreTest,
  options: HandlerOptions<Context> = {},
  link: LinkOptions = {},
  after: (step: StepContext, answer: unknown, input: unknown) => unknown = (_step, answer) => answer,
): LinkedService {
  const links = signedLinks({ keys: [LINK_KEY], url: "http://localhost" });
  const sent: string[] = [];
  const send = async (step: StepContext, metadata: unknown, input: unknown) => {
    const wait = await step.prepareWait("approve", { timeout: 60_000, metadata });
    await step.run("send", async () => {
      sent.push((await links.toWait(wait, { for: "ada@example.com", ...link })).replace("http://localhost", ""));
    });
    return await after(step, await step.waitFor(wait as { id: string }), input);
  };
  const ask = defineJob({
    name: "ask",
    input: anything,
    run: (step, input) =>
      send(
        step,
        (input as { metadata?: unknown }).metadata ?? { message: "Refund?", amount: 12, actions: ACTIONS },
        input,
      ),
  });
  const form = defineJob({
    name: "form",
    input: anything,
    waits: { approve: FORM },
    run: (step, input) => send(step, { message: "Refund?" }, input),
  });
  const service = aService({ links, ...options }, world, { ask, form });
  const page = async (request: Request): Promise<Page> => {
    const response = await service.handler.fetch(request);
    const html = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      html,
      heading: /<h1>(.*?)<\/h1>/s.exec(html)?.[1] ?? "",
    };
  };
  return {
    ...service,
    links,
    sent,
    ask1: async (job, input = {}) => {
      const { id } = await service.engine.trigger(job, input);
      await service.engine.runUntilIdle();
      return { id, path: sent.at(-1)! };
    },
    open: (path, method = "GET", headers = {}) => page(aRequest(method, path, { headers })),
    post: (path, fields, headers = {}) => page(aRequest("POST", path, { body: new URLSearchParams(fields), headers })),
    [Symbol.asyncDispose]: () => service[Symbol.asyncDispose](),
  };
}
