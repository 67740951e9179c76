import { needs } from "../support/platform.ts";
import type { Scenario } from "./scenario.ts";
import { Patience } from "./scenarios/patience.ts";

/** Registers a test of each scenario, in its brief form. */
export function testScenarios(scenarios: readonly Scenario[]): void {
  for (const scenario of scenarios) {
    Deno.test(`the promises hold: ${scenario.name}`, needs("signals"), async () => {
      const patience = new Patience(new AbortController().signal);

      const result = await scenario.run({ isBrief: true, ms: 8_000, patience });

      if (result.outcome === "skipped") console.log(`The scenario "${scenario.name}" is skipped: ${result.reason}`);
    });
  }
}
