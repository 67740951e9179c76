import { Patience } from "./scenarios/patience.ts";
import { SCENARIOS } from "./scenarios/scenarios.ts";

for (const scenario of SCENARIOS) {
  Deno.test(`the promises hold: ${scenario.name}`, async () => {
    const patience = new Patience(new AbortController().signal);

    const result = await scenario.run({ isBrief: true, patience });

    if (result.outcome === "skipped") console.log(`The scenario "${scenario.name}" is skipped: ${result.reason}`);
  });
}
