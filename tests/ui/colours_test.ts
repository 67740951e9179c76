import assert from "node:assert/strict";
import { Shape } from "../../src/ui/app/parts/icons.js";

const CSS = await Deno.readTextFile(new URL("../../src/ui/app/css/base.css", import.meta.url));
const THEMES = ["light", "dark"] as const;
const TEXTS = [
  "ink",
  "muted",
  "accent",
  "pending",
  "running",
  "waiting",
  "retrying",
  "completed",
  "failed",
  "cancelled",
];
const STATUSES = [
  "pending",
  "running",
  "waiting",
  "sleeping",
  "retrying",
  "completed",
  "failed",
  "cancelled",
  "paused",
];
const SURFACES = ["paper", "raised", "sunken"];
const FILLS = TEXTS.slice(3).map((status) => `${status}-fill`);

/** The colours of a theme by their names, as in `light-dark(#faf9f6, #141311)`. */
function coloursOf(theme: typeof THEMES[number]): Map<string, string> {
  const pairs = CSS.matchAll(/--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)/g);
  return new Map([...pairs].map(([, name, light, dark]) => [name!, theme === "light" ? light! : dark!]));
}

/** The contrast of two colours (WCAG 2.2, "contrast ratio"), from 1 to 21. */
function contrast(one: string, other: string): number {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high! + 0.05) / (low! + 0.05);
}

function luminance(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const part = parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

/** The pairs whose contrast is below `least`. */
function tooClose(theme: typeof THEMES[number], pairs: [text: string, surface: string][], least: number): string[] {
  const colours = coloursOf(theme);
  return pairs.flatMap(([text, surface]) => {
    const ratio = contrast(colours.get(text)!, colours.get(surface)!);
    return ratio >= least ? [] : [`${text} on ${surface}: ${ratio.toFixed(2)}`];
  });
}

const cross = (ones: string[], others: string[]) =>
  ones.flatMap((one) => others.map((other): [string, string] => [one, other]));

Deno.test("contrast() is that of WCAG", () => {
  assert.equal(contrast("#ffffff", "#000000"), 21);
  assert.equal(contrast("#777777", "#ffffff").toFixed(2), "4.48");
});

for (const theme of THEMES) {
  Deno.test(`text has a contrast of 4.5:1 or more, ${theme}`, () => {
    const banners: [string, string][] = [["failed", "failed-soft"], ["waiting", "waiting-soft"], [
      "on-accent",
      "accent",
    ]];
    const others = cross(["ink", "muted"], ["failed-soft", "waiting-soft", "accent-soft", "side"]);

    assert.deepEqual(tooClose(theme, [...cross(TEXTS, SURFACES), ...banners, ...others], 4.5), []);
  });

  Deno.test(`bars, charts and the edges of controls have a contrast of 3:1 or more, ${theme}`, () => {
    assert.deepEqual(tooClose(theme, cross([...FILLS, "edge"], ["raised"]), 3), []);
  });
}

Deno.test("each status has a shape of its own, so that it is told apart in grey", () => {
  const shapes = STATUSES.map((status) => drawingOf(Shape({ status })));

  assert.equal(new Set(shapes).size, STATUSES.length);
});

/** What an element draws, without its colours. */
function drawingOf(element: unknown): string {
  return JSON.stringify(element, (key, value) => key.startsWith("__") || key === "data-s" ? undefined : value);
}
