/**
 * What has to be true in every simulation. `docs/reliability.md` promises most of it to users. A broken promise is
 * reported with one of these names.
 */
export const INVARIANTS = {
  I1: "What is recorded of a step never changes, reaches every replay, and is never executed again.",
  I2: "Only the newest lease of a run can write.",
  I3: "A run that has ended does not change, and it has ended as its function did or as it was cancelled.",
  I4: "An accepted signal is the one outcome of its wait, with one receipt, in every replay and every retry.",
  I5: "A deadline never moves: nothing that waits for time ends before it, and no signal is accepted after it.",
  I6: "An idempotency key of a job leads to one run.",
  I7: "Of the runs that share a concurrency key, one executes at a time, or as many as they allow.",
  I8: "A tenant sees and changes its own runs only.",
  I9: "Every run ends, every wait for its end or its stream is answered, and neither before it has ended.",
  I10: "A replay sees what the executions before it saw, in the same order.",
  I11: "A run fails for its own reason or after too many abandonments; a fault of the store fails none.",
  I12: "A trigger and a retrigger make the run that was asked for, or answer the right existing one.",
  I13: "A cancel, a deletion or a retrigger that was answered is done; a cancel interrupts what executes of the run.",
  I14: "The lease generation of a run only rises, and a renewal never shortens its lease.",
  I15: "A run exists until it is deleted, and nothing is left of a deleted run.",
  I16: "While clocks run evenly, a process begins no step under a lease that a newer one has replaced.",
  I17: "A process publishes each event once, in order, after its commit, and late by no more than a look at the store.",
  I18: "A worker executes no more runs than it was asked to.",
  I19: "A worker claims only jobs that it knows.",
  I20: "The service does what a request asks for or refuses it for a true reason, and each answer is well formed.",
  I21: "A log has each of its lines once, in the order in which they were written.",
  I22: "The latest progress that a run reports is kept: while it executes soon, and when it ends.",
  I23: "After a stop nothing of the process goes on, and a lease is released when no code of its job runs any more.",
  F1: "A run starts neither before its start, nor after it was to start, nor from the commit on that paused its job.",
  F2: "A run takes a place only if its job, and those who hold its key, are fewer than the limit allows.",
  F3: "In each window of a rate, by the store's clock, no more runs start than its limit.",
  F4: "Runs of a fairness key go by position, and while it has one that may go no other key is served more than twice.",
  F5: "A claim with room for more leaves no run that may go, and says when the next one may, or something expires.",
  F7: "A child is made, ends and is cancelled with the call of its parent, which sees its one outcome.",
  F8: "A run with a deadline ends, nothing is recorded in it afterwards, and it fails as late only if it is.",
  F9: "An attempt begins no earlier than its delay after the one before, however wrong the clocks of processes are.",
  F12: "A system in which nothing changes looks for work no more often than it polls.",
  J1: "A reader of the journal gets every row that is kept, once and in order, and learns that others are gone.",
  J2: "The journal has the facts of each commit and no others.",
  J3: "The state of a run is what its facts in the journal add up to.",
  J4: "A stream sends the state of its run, then each event that it shows, once and in order.",
  J5: "An id is a position in this journal that covers all events before it, and a stream resumes right after it.",
  J7: "The journal keeps its newest row, and trims what it has no room for and no more.",
  K: "The rows of a SqliteStore keep K1 and K2 of concurrency_keys.ts, and its counts of runs are right.",
  error: "The code of the simulation, and the code that it calls, throws nothing that is unexpected.",
} as const;

/** The name of something that has to be true in every simulation. */
export type Invariant = keyof typeof INVARIANTS;
