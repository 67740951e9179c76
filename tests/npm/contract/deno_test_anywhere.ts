// Deno.test() for a runtime that has none: what is registered is executed one by one when all modules are loaded.
import process from "node:process";

const tests: { name: string; body: () => void | Promise<void> }[] = [];
const register = (name: string, body: () => void | Promise<void>) => void tests.push({ name, body });
Object.assign(globalThis, { Deno: { test: register } });

setTimeout(async () => {
  let failed = 0;
  for (const { name, body } of tests) {
    try {
      await body();
    } catch (error) {
      failed += 1;
      console.error(`${name}:`, error);
    }
  }
  console.log(`${tests.length - failed} passed, ${failed} failed`);
  if (failed > 0) process.exitCode = 1;
});
