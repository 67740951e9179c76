import type { Engine } from "../../engine/engine.ts";
import { internalsOf } from "../../engine/engine_internals.ts";
import type { Health } from "../../engine/operate/health.ts";
import type { JobInfo } from "../../engine/operate/job_info.ts";
import type { MetricsSource } from "../../engine/operate/statistics/monitor.ts";
import type { Stats } from "../../engine/operate/operator.ts";
import type { Series, SeriesQuery } from "../../engine/operate/statistics/series.ts";
import type { WorkerInfo } from "../../engine/operate/worker_info.ts";
import type { TriggerResult } from "../../engine/triggers/new_run.ts";
import { type ClientSchedule, toClientSchedule } from "../client_schedule.ts";
import type { Streams } from "../streams/streams.ts";
import { withoutUndefined } from "../without_undefined.ts";
import type { HandlerAuth } from "./auth_hooks.ts";
import type { AuthorizedEngine } from "./authorized_engine.ts";
import type { Caller } from "./caller.ts";

/** The health of the process, as far as a caller may see it. */
export interface ShownHealth {
  /** All of it, or the status alone. */
  shown: Health | Pick<Health, "status">;
  /** Whether the answer is yes: ready, or live. */
  isFine: boolean;
}

/** What metrics are made of, with the event streams of the handler. */
export interface HandlerMetrics extends MetricsSource {
  /** How many streams are open. */
  streams: { run: number; list: number };
}

/** The dependencies of {@linkcode AuthorizedOperator}. */
export interface AuthorizedOperatorDeps {
  /** The engine that is served. */
  engine: Engine;
  /** The same, restricted to what the caller may do. */
  runs: AuthorizedEngine;
  /** The hooks; `null`: every caller may do everything. */
  auth: HandlerAuth<unknown> | null;
  /** The event streams of the handler. */
  streams: Streams;
}

/**
 * The operations of an engine that do not concern one run, restricted to what the sender of a request may do: each calls
 * `onOperate`.
 */
export class AuthorizedOperator {
  readonly #caller: Caller;
  readonly #engine: Engine;
  readonly #runs: AuthorizedEngine;
  readonly #streams: Streams;
  /** Whether a hook decides who may read a run. */
  readonly #isRestricted: boolean;

  constructor(caller: Caller, { engine, runs, auth, streams }: AuthorizedOperatorDeps) {
    this.#caller = caller;
    this.#engine = engine;
    this.#runs = runs;
    this.#streams = streams;
    this.#isRestricted = auth?.onRunAccess !== undefined;
  }

  /** The numbers of the store. */
  async getStats(): Promise<Stats> {
    await this.#caller.checkOperation({ operation: "stats" });
    const stats = await this.#engine.getStats();
    return { ...stats, jobs: await this.#shownJobs(stats.jobs) };
  }

  /** What happened lately. */
  async getSeries(query: SeriesQuery): Promise<Series> {
    const { jobName } = query;
    await this.#caller.checkOperation({ operation: "stats", ...withoutUndefined({ jobName }) });
    return await this.#engine.getSeries(query);
  }

  /** The jobs. */
  async getJobs(): Promise<JobInfo[]> {
    await this.#caller.checkOperation({ operation: "jobs" });
    return await this.#shownJobs(await this.#engine.getJobs());
  }

  /** Pauses a job. */
  async pauseJob(jobName: string, note: string | undefined): Promise<JobInfo> {
    await this.#caller.checkOperation({ operation: "pause", jobName });
    return await this.#changedJob(await this.#engine.pauseJob(jobName, withoutUndefined({ note })));
  }

  /** Ends the pause of a job. */
  async resumeJob(jobName: string): Promise<JobInfo> {
    await this.#caller.checkOperation({ operation: "resume", jobName });
    return await this.#changedJob(await this.#engine.resumeJob(jobName));
  }

  /** The workers. */
  async getWorkers(): Promise<WorkerInfo[]> {
    await this.#caller.checkOperation({ operation: "workers" });
    return await this.#engine.getWorkers();
  }

  /** The health of the process: the status alone for a caller that is not authenticated. */
  async getHealth(): Promise<ShownHealth> {
    await this.#checkHealth();
    const health = await this.#engine.health();
    return { shown: this.#shown(health), isFine: health.ready };
  }

  /** The part of the health that is known without a call to the store. */
  async getLiveness(): Promise<ShownHealth> {
    await this.#checkHealth();
    const health = internalsOf(this.#engine).liveness();
    return { shown: this.#shown(health), isFine: health.live };
  }

  /** What metrics are made of. */
  async getMetrics(): Promise<HandlerMetrics> {
    await this.#caller.checkOperation({ operation: "metrics" });
    return { ...await internalsOf(this.#engine).metrics(), streams: this.#streams.count() };
  }

  /** The OpenAPI document. */
  async getDocument(document: () => string): Promise<string> {
    await this.#caller.checkOperation({ operation: "docs" });
    return document();
  }

  /** All schedules. */
  async listSchedules(): Promise<ClientSchedule[]> {
    await this.#caller.checkOperation({ operation: "schedules" });
    return (await this.#engine.schedules.list()).map(toClientSchedule);
  }

  /** Pauses a schedule. */
  async pauseSchedule(scheduleName: string): Promise<ClientSchedule> {
    await this.#caller.checkOperation({ operation: "pause", scheduleName });
    return toClientSchedule(await this.#engine.schedules.pause(scheduleName));
  }

  /** Ends the pause of a schedule. */
  async resumeSchedule(scheduleName: string): Promise<ClientSchedule> {
    await this.#caller.checkOperation({ operation: "resume", scheduleName });
    return toClientSchedule(await this.#engine.schedules.resume(scheduleName));
  }

  /** Triggers a schedule, without a slot. */
  async triggerSchedule(scheduleName: string): Promise<TriggerResult> {
    await this.#caller.checkOperation({ operation: "trigger", scheduleName });
    return await this.#engine.schedules.trigger(scheduleName);
  }

  /** Refuses a caller who may not load the pages of the dashboard, unless the host has opened them. */
  async checkUi(): Promise<void> {
    if (!this.#caller.isAnonymous) await this.#caller.checkOperation({ operation: "ui" });
  }

  async #checkHealth(): Promise<void> {
    if (!this.#caller.isAnonymous) await this.#caller.checkOperation({ operation: "health" });
  }

  /** Jobs without the ids of runs that the caller may not read. */
  #shownJobs(jobs: readonly JobInfo[]): Promise<JobInfo[]> {
    return Promise.all(jobs.map((job) => this.#shownJob(job)));
  }

  async #shownJob(job: JobInfo): Promise<JobInfo> {
    const runId = job.oldestDue?.runId ?? null;
    if (runId === null || !this.#isRestricted || await this.#runs.may(runId, "read")) return job;
    return withoutRun(job);
  }

  /** The same for a job that was changed: a hook that fails cannot undo that. */
  #changedJob(job: JobInfo): Promise<JobInfo> {
    return this.#shownJob(job).catch(() => withoutRun(job));
  }

  #shown(health: Health): ShownHealth["shown"] {
    return this.#caller.isAnonymous ? { status: health.status } : health;
  }
}

function withoutRun(job: JobInfo): JobInfo {
  return { ...job, oldestDue: job.oldestDue && { ...job.oldestDue, runId: null } };
}
