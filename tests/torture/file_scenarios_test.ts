import { FILE_SCENARIOS } from "./scenarios/scenarios.ts";
import { testScenarios } from "./test_scenarios.ts";

// Two files of scenarios, which mostly wait, can run at the same time.
testScenarios(FILE_SCENARIOS);
