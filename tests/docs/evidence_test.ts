import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type Evidence, type EvidenceRun, KINDS, renew, TEXTS } from "../../tools/evidence_pages.ts";
import { readPages, toUrl } from "./pages.ts";

const evidence: Evidence = JSON.parse(readFileSync(toUrl("docs/evidence.json"), "utf8"));
const { tasks } = JSON.parse(readFileSync(toUrl("deno.json"), "utf8"));

/** A page without what `deno fmt` decides. */
function plain(page: string): string {
  return page.replaceAll(/-{3,}:?/g, "---").replaceAll(/\s+/g, " ");
}

for (const [path, texts] of Object.entries(TEXTS)) {
  Deno.test(`${path} says of the evidence what docs/evidence.json has: else, deno task evidence --only pages`, () => {
    const page = readFileSync(toUrl(path), "utf8");

    const renewed = renew(page, texts, evidence);

    assert.equal(plain(page), plain(renewed));
  });

  Deno.test(`${path} is not what it would be of other evidence`, () => {
    const page = readFileSync(toUrl(path), "utf8");
    const more = structuredClone(evidence);
    for (const run of Object.values<EvidenceRun>(more)) {
      for (const { counts } of run.results) {
        for (const name of Object.keys(counts)) counts[name]! += 1;
      }
      run.results = run.results.map((result) => ({ ...result, broken: 1 }));
    }

    const renewed = renew(page, texts, more);

    assert.notEqual(plain(page), plain(renewed));
  });
}

Deno.test("each run of the evidence says with which command and of which revision it is, and was counted", () => {
  const runs = Object.entries<EvidenceRun>(evidence);

  assert.ok(runs.length > 0);
  for (const [name, { command, revision, date, minutes, results }] of runs) {
    assert.ok(name in KINDS, name);
    assert.ok(/^deno task ([a-z:]+)/.exec(command)![1]! in tasks, command);
    assert.match(revision, /^[0-9a-f]{8}\+?$/);
    assert.match(date, /^\d{4}-\d\d-\d\d$/);
    assert.ok(minutes >= 0 && results.length > 0, name);
  }
});

Deno.test("each count that a page shows is one that was counted", () => {
  const missing = Object.entries<EvidenceRun>(evidence).flatMap(([name, { results }]) => {
    const shows: readonly string[] = KINDS[name as keyof typeof KINDS].shows;
    return shows.filter((count) => !results.some(({ counts }) => count in counts)).map((count) => `${name}: ${count}`);
  });

  assert.deepEqual(missing, []);
});

const MARKED = /<!--evidence:\w+-->[^]*?<!--\/evidence-->/g;
const FIGURE = /\b\d[\d,.]* (?:million )?(?:seeds|kills|mutants|situations|suspensions|simulated systems)\b/g;
/** A bound that a test keeps, and what a sentence says of earlier versions. */
const NO_EVIDENCE = ["500 seeds", "100,000 seeds"];

Deno.test("no page has figures of such runs beside those of docs/evidence.json", () => {
  const pages = readPages().filter(({ path }) => path !== "CHANGELOG.md" && !path.startsWith("docs/adr/"));

  const figures = pages.flatMap(({ path, prose }) =>
    [...prose.join("\n").replaceAll(MARKED, "").matchAll(FIGURE)].map(([figure]) => `${path}: ${figure}`)
  );

  assert.ok(pages.length > 40);
  assert.deepEqual(figures.filter((figure) => !NO_EVIDENCE.some((other) => figure.endsWith(` ${other}`))), []);
});

Deno.test("renew() throws if a page has lost its marks", () => {
  assert.throws(() => renew("# A page\n", { results: () => "" }, {}), /no marks of "results"/);
});
