import { simulate } from "./simulation/simulation.ts";
const [store, from, to] = Deno.args;
for (let seed = +from!; seed <= +to!; seed++) {
  const v = await simulate({ seed, store: store as never });
  if (v.violation) console.log(seed, v.violation.message.slice(0, 6000));
}
