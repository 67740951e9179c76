import { SCENARIOS } from "./scenarios/scenarios.ts";

for (const scenario of SCENARIOS) {
  Deno.test(`the promises hold: ${scenario.name}`, async () => {
    const result = await scenario.run({ isBrief: true });

    if (result.outcome === "skipped") console.log(`The scenario "${scenario.name}" is skipped: ${result.reason}`);
  });
}
