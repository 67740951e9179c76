// deno run -A site/draw_images.ts    draws the pictures of docs/images, for light and dark pages

/** The colors of a picture. */
interface Palette {
  page: string;
  text: string;
  quiet: string;
  line: string;
  box: string;
  done: string;
  now: string;
  dead: string;
}

const LIGHT: Palette = {
  page: "#ffffff",
  text: "#1f2328",
  quiet: "#656d76",
  line: "#8c959f",
  box: "#f6f8fa",
  done: "#1a7f37",
  now: "#0969da",
  dead: "#cf222e",
};
const DARK: Palette = {
  page: "#0d1117",
  text: "#e6edf3",
  quiet: "#9198a1",
  line: "#6e7681",
  box: "#161b22",
  done: "#3fb950",
  now: "#4493f8",
  dead: "#f85149",
};

type Point = readonly [x: number, y: number];

const text = (
  x: number,
  y: number,
  content: string,
  color: string,
  more = "",
) => `<text x="${x}" y="${y}" fill="${color}" ${more}>${content}</text>`;
const middle = 'text-anchor="middle"';
const small = 'font-size="12"';

function box(
  x: number,
  y: number,
  width: number,
  label: string,
  p: Palette,
  color = p.line,
  more = "",
): string {
  return `<rect x="${x}" y="${y}" width="${width}" height="36" rx="6" fill="${p.box}" stroke="${color}" ${more}/>` +
    text(x + width / 2, y + 23, label, p.text, middle);
}

function arrow(points: readonly Point[], p: Palette, more = ""): string {
  const path = points.map(([x, y], i) => `${i === 0 ? "M" : "L"}${x} ${y}`)
    .join(" ");
  return `<path d="${path}" fill="none" stroke="${p.line}" stroke-width="1.5" marker-end="url(#tip)" ${more}/>`;
}

function picture(
  width: number,
  height: number,
  title: string,
  p: Palette,
  parts: readonly string[],
): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" ` +
    `font-family="ui-sans-serif, system-ui, sans-serif" font-size="14" role="img" aria-label="${title}">
<title>${title}</title>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">` +
    `<path d="M0 0L8 4L0 8z" fill="${p.line}"/></marker></defs>
<rect width="${width}" height="${height}" rx="8" fill="${p.page}"/>
${parts.join("\n")}
</svg>
`;
}

/** A run whose process dies, and that another one continues. */
function drawResume(p: Palette): string {
  const lane = (y: number, name: string, note: string) => [
    text(24, y + 18, name, p.text, 'font-weight="600"'),
    text(24, y + 36, note, p.quiet, small),
    `<line x1="150" x2="836" y1="${y + 60}" y2="${y + 60}" stroke="${p.line}" stroke-opacity="0.35"/>`,
  ];
  const recorded = (x: number) => arrow([[x, 82], [x, 218]], p, 'stroke-dasharray="3 3"');
  const row = (x: number, label: string) =>
    `<rect x="${x}" y="222" width="104" height="30" rx="4" fill="${p.box}" stroke="${p.done}"/>` +
    text(x + 52, 242, `✓ ${label}`, p.done, `${middle} font-size="13"`);
  return picture(
    860,
    282,
    "A run whose process is killed, and that another process continues",
    p,
    [
      ...lane(30, "process 1", "executes the run"),
      box(156, 46, 96, "read", p, p.done),
      box(262, 46, 96, "charge", p, p.done),
      box(368, 46, 60, "mail", p, p.dead, 'stroke-dasharray="4 3"'),
      text(438, 62, "✕ kill -9", p.dead, 'font-weight="600"'),
      text(438, 79, "its lease expires", p.quiet, small),
      ...lane(118, "process 2", "claims the run"),
      box(482, 134, 62, "read", p, p.line, 'stroke-dasharray="2 3"'),
      box(552, 134, 72, "charge", p, p.line, 'stroke-dasharray="2 3"'),
      text(
        553,
        128,
        "recorded: not executed again",
        p.quiet,
        `${middle} ${small}`,
      ),
      box(634, 134, 90, "mail", p, p.now),
      box(734, 134, 90, "file", p, p.now),
      text(24, 236, "jobs.db", p.text, 'font-weight="600"'),
      text(24, 254, "results of steps", p.quiet, small),
      recorded(204),
      recorded(310),
      arrow([[679, 172], [679, 218]], p, 'stroke-dasharray="3 3"'),
      arrow([[779, 172], [779, 218]], p, 'stroke-dasharray="3 3"'),
      row(152, "read"),
      row(262, "charge"),
      row(627, "mail"),
      row(737, "file"),
    ],
  );
}

/** The states of a run. */
function drawStates(p: Palette): string {
  const note = (x: number, y: number, content: string) => text(x, y, content, p.quiet, `${middle} ${small}`);
  return picture(
    860,
    330,
    "The states of a run, and what leads from one to the next",
    p,
    [
      `<rect x="76" y="66" width="506" height="228" rx="10" fill="none" stroke="${p.line}" stroke-dasharray="4 4"/>`,
      arrow([[14, 118], [94, 118]], p),
      note(40, 108, "trigger"),
      box(96, 100, 110, "pending", p, p.now),
      arrow([[206, 118], [268, 118]], p),
      note(237, 108, "claim"),
      box(270, 100, 100, "leased", p, p.now),
      arrow([[370, 118], [444, 118]], p),
      note(407, 108, "begins"),
      box(446, 100, 116, "running", p, p.now),
      arrow([[504, 100], [504, 40], [151, 40], [151, 98]], p),
      note(328, 32, "engine.stop(), or held: its code does not fit"),
      box(446, 232, 116, "waiting", p, p.now),
      arrow([[504, 136], [504, 230]], p),
      text(496, 176, "only pauses", p.quiet, `text-anchor="end" ${small}`),
      text(496, 192, "are left", p.quiet, `text-anchor="end" ${small}`),
      arrow([[446, 250], [320, 250], [320, 138]], p),
      note(380, 268, "signal, time or"),
      note(380, 284, "child; claim"),
      arrow([[300, 136], [300, 180], [200, 180], [200, 158], [284, 158], [
        284,
        138,
      ]], p),
      note(196, 198, "lease expires: claimed again"),
      arrow([[562, 112], [698, 52]], p),
      note(622, 66, "returns"),
      box(700, 34, 120, "completed", p, p.done),
      arrow([[562, 122], [698, 148]], p),
      note(640, 124, "throws, or is late"),
      box(700, 132, 120, "failed", p, p.dead),
      arrow([[582, 250], [698, 250]], p),
      note(640, 240, "cancel"),
      box(700, 232, 120, "cancelled", p, p.line),
      note(760, 300, "terminal: these never change"),
    ],
  );
}

/** The pictures, by the names of their files in `docs/images`. */
export function drawImages(): Record<string, string> {
  return {
    "resume-light.svg": drawResume(LIGHT),
    "resume-dark.svg": drawResume(DARK),
    "states-light.svg": drawStates(LIGHT),
    "states-dark.svg": drawStates(DARK),
  };
}

if (import.meta.main) {
  for (const [name, image] of Object.entries(drawImages())) {
    Deno.writeTextFileSync(new URL(`../docs/images/${name}`, import.meta.url), image);
  }
}
