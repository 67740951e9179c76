import type { JobLimits } from "../model/flow.ts";
import type { Job } from "../model/job.ts";
import { defineJob } from "../model/job/define_job.ts";
import { retryDelay, type RetryPolicy } from "../model/retry.ts";
import type { Schema } from "../model/schema.ts";
import type { Duration } from "../values/duration.ts";
import { isInstance, kindOf, propertyOf } from "../values/unknown_values.ts";
import type { Json } from "../values/json.ts";
import { checkOptionNames, namesOf } from "../values/option_names.ts";
import { sendWebhook, type WebhookEndpoint } from "./send_webhook.ts";

/** The input of a delivery. */
export interface WebhookInput {
  /** The id of the endpoint, for `endpoint()`: addresses and secrets are not stored. */
  endpoint: string;
  /** What has happened, such as `refund.paid`. */
  type: string;
  /** What the receiver is to know of it. */
  data: Json;
}

/** The output of a delivery: the status of the receiver's answer, or that the endpoint is gone or disabled. */
export type WebhookResult = { status: number } | { skipped: true };

/** A delivery that has failed for good. */
export interface FailedDelivery {
  /** The id of its run. */
  runId: string;
  /** What has happened. */
  type: string;
  /** The message of the last failure. */
  error: string;
}

/** Options of {@linkcode webhookJob}. */
export interface WebhookJobOptions<Name extends string = string> {
  /** The name of the job. */
  name: Name;
  /** Looks up an endpoint, at each attempt. `null`: it is gone or disabled, and the run completes as skipped. */
  endpoint: (id: string) => WebhookEndpoint | null | Promise<WebhookEndpoint | null>;
  /** Called in a recorded step after the last attempt of each run, for example to disable the endpoint. */
  onFail?: (endpoint: string, delivery: FailedDelivery) => unknown;
  /** How often it is sent. Default: 19 attempts with delays from 5 seconds to 12 hours, in about 71 hours. */
  retry?: RetryPolicy;
  /** How long an attempt may take. Default 20 seconds. */
  timeout?: Duration;
  /** How many deliveries are sent at once, and how often. Default: no limits. */
  limits?: JobLimits;
  /** Sends a request: `fetch()` over an egress proxy, for example. Default: that of the runtime. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>;
  /** Finds the addresses of a name. Default: the DNS of the system. */
  resolve?: (hostname: string) => Promise<readonly string[]>;
  /** Whether an endpoint may be in a private network, and `http:`. For tests. Default `false`. */
  allowPrivate?: boolean;
}

const OPTIONS = namesOf<keyof WebhookJobOptions>()(
  "name endpoint onFail retry timeout limits fetch resolve allowPrivate",
);

const RETRY: RetryPolicy = { maxAttempts: 19, delay: 5_000, backoff: "exponential", maxDelay: "12h" };
const RETRY_OF_ON_FAIL: RetryPolicy = { maxAttempts: 5, delay: 1_000, backoff: "exponential" };

/**
 * Creates a job that delivers a webhook: each delivery is a run of it. It sends `{ type, timestamp, data }`, signed as
 * Standard Webhooks say (https://www.standardwebhooks.com), until the receiver answers 2xx. A 410 ends the attempts; the
 * body of an answer is not read, and redirects are not followed.
 *
 * A crash may send the same bytes again, with the same `webhook-id`. Deliveries with the same `concurrencyKey` are sent
 * one after another, also while the first one is retried.
 *
 * @example
 * ```ts
 * import { createEngine, MemoryStore } from "@holdfast/jobs";
 * import { webhookJob } from "@holdfast/jobs/webhooks";
 *
 * const deliver = webhookJob({
 *   name: "deliver",
 *   endpoint: (id) => id === "shop-7" ? { url: "https://shop.example/hooks", secret: "whsec_c2hvcC03" } : null,
 * });
 * await using engine = createEngine({ store: new MemoryStore(), jobs: { deliver } });
 * await engine.start();
 * const input = { endpoint: "shop-8", type: "refund.paid", data: { order: "o-1" } };
 * console.log((await engine.jobs.deliver.triggerAndWait(input)).output); // { skipped: true }
 * ```
 *
 * @throws {TypeError} An option is unknown, or not of its type.
 * @throws {RangeError} A number of an option is out of range.
 */
export function webhookJob<const Name extends string>(
  options: WebhookJobOptions<Name>,
): Job<WebhookInput, WebhookResult, Name> {
  checkOptionNames(options, OPTIONS, "webhookJob()");
  const { name, endpoint: find, onFail, limits, retry = RETRY, timeout = 20_000 } = options;
  for (const [option, value] of Object.entries({ endpoint: find, onFail: onFail ?? find })) {
    if (typeof value !== "function") throw new TypeError(`${option} of webhookJob() must be a function`);
  }
  return defineJob({
    name,
    input: INPUT,
    ...(limits === undefined ? {} : { limits }),
    async run(step, { endpoint, type, data }): Promise<WebhookResult> {
      // Recorded, so that each attempt has the same bytes, also in a retry of this run, which is the same webhook.
      const sent = await step.run("timestamp", () => ({ id: `msg_${step.runId}`, at: new Date().toISOString() }));
      const body = JSON.stringify({ type, timestamp: sent.at, data });
      try {
        return await step.run("deliver", async ({ abortSignal, attempt }) => {
          const found = await find(endpoint);
          // The first row of a query that finds none is `undefined`, whatever its type says.
          if (found === null || found === undefined) return { skipped: true as const };
          const delayMs = retryDelay(retry, attempt, Math);
          return await sendWebhook(found, { id: sent.id, body, delayMs }, abortSignal, options);
        }, { retry, timeout });
      } catch (error) {
        if (onFail !== undefined) {
          const failed = { runId: step.runId, type, error: String(propertyOf(error, "message")) };
          const call = async () => {
            await onFail(endpoint, failed);
            return step.runId;
          };
          // A retry from the failure has the record of the run before it: then this run has not called it yet.
          while (await step.run("on fail", call, { retry: RETRY_OF_ON_FAIL }) !== step.runId);
        }
        throw error;
      }
    },
  });
}

/** Checks the input of a delivery. */
const INPUT: Schema<WebhookInput, WebhookInput> = {
  "~standard": {
    version: 1,
    vendor: "holdfast",
    validate: (value) => {
      if (typeof value !== "object" || value === null || isInstance(value, Array)) {
        return { issues: [{ message: `must be an object, not ${kindOf(value)}` }] };
      }
      const issues = (["endpoint", "type"] as const).filter((name) => typeof propertyOf(value, name) !== "string")
        .map((name) => ({ message: "must be a string", path: [name] }));
      const { endpoint, type, data = null } = value as WebhookInput; // checked above
      return issues.length > 0 ? { issues } : { value: { endpoint, type, data } };
    },
    jsonSchema: {
      input: () => ({
        type: "object",
        properties: { endpoint: { type: "string" }, type: { type: "string" }, data: {} },
        required: ["endpoint", "type"],
      }),
    },
  },
};
