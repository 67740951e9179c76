import { connect } from "./lease_sampler.ts";

const LOOK_EVERY_MS = 50;
// Only reached when something is broken: a slow machine must not make a test fail.
const PATIENCE_MS = 60_000;

/**
 * Waits until all runs have ended. Answers how long that took, in milliseconds.
 *
 * @throws For a minute, none has ended.
 */
export async function drain(url: string, schema: string): Promise<number> {
  const since = performance.now();
  const client = await connect(url);
  const open = `select count(*)::int as count, min(job || ' ' || id || ' ' || status) as first
    from ${schema}.runs where status in ('pending', 'running', 'waiting')`;
  try {
    for (let fewest = Infinity, at = since;;) {
      const { count, first } = (await client.query(open)).rows[0];
      if (count === 0) return performance.now() - since;
      if (count < fewest) [fewest, at] = [count, performance.now()];
      else if (performance.now() > at + PATIENCE_MS) throw new Error(`${count} runs do not end, such as ${first}`);
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS));
    }
  } finally {
    await client.end();
  }
}
