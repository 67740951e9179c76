// bench/deno.json names the package for pictures: it is loaded with `--svg` alone.
import * as echarts from "echarts";
import type { Machine } from "./machine.ts";
import type { Result } from "./measure.ts";
import { measuredContenders, shortNumber } from "./table.ts";
import type { Contender, Unit, Workload } from "./workload.ts";

const WIDTH = 960;
const ROW = 21;
const HEADER = 84;
const FOOTER = 64;
const BETWEEN = 76;

// Okabe and Ito's colours, which the colour-blind can tell apart, and shapes for those who print.
const LOOKS: Record<Contender, { label: string; color: string; symbol: string; size: number }> = {
  raw: { label: "raw database", color: "#8c8c8c", symbol: "diamond", size: 10 },
  empty: { label: "Holdfast, empty database", color: "#56b4e9", symbol: "emptyCircle", size: 9 },
  holdfast: { label: "Holdfast", color: "#0072b2", symbol: "circle", size: 11 },
  durably: { label: "durably 0.15", color: "#d55e00", symbol: "triangle", size: 9 },
  openworkflow: { label: "openworkflow 0.10", color: "#009e73", symbol: "rect", size: 8 },
  dbos: { label: "DBOS 5.3", color: "#cc79a7", symbol: "arrow", size: 9 },
  "pg-boss": { label: "pg-boss 12.38", color: "#e69f00", symbol: "pin", size: 9 },
};

const PANELS: readonly { unit: Unit; title: string }[] = [
  { unit: "per second", title: "Per second: more is better" },
  { unit: "ms", title: "Milliseconds: less is better" },
];

/**
 * Draws the rates and durations of results as an SVG: a row a figure, a mark a contender at its median, and a line from
 * its least to its most. The axes are logarithmic, so these are marks and no bars, which would have to begin at zero.
 * It is drawn on white, to be read on any page.
 */
export function picture(workloads: readonly Workload[], results: readonly Result[], machine: Machine): string {
  const panels = PANELS.map((panel) => ({ ...panel, rows: results.filter(({ figure }) => figure.unit === panel.unit) }))
    .filter(({ rows }) => rows.length > 0);
  const height = HEADER + FOOTER + panels.reduce((sum, { rows }) => sum + rows.length * ROW, 0) +
    BETWEEN * (panels.length - 1);
  const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width: WIDTH, height });
  try {
    chart.setOption(chartOption(panels, results, workloads, machine, height));
    return chart.renderToSVGString() + "\n";
  } finally {
    chart.dispose();
  }
}

interface Panel {
  title: string;
  rows: readonly Result[];
}

function chartOption(
  panels: readonly Panel[],
  results: readonly Result[],
  workloads: readonly Workload[],
  machine: Machine,
  height: number,
) {
  let top = HEADER;
  const tops = panels.map(({ rows }) => {
    const own = top;
    top += rows.length * ROW + BETWEEN;
    return own;
  });
  const contenders = measuredContenders(results);
  return {
    animation: false,
    backgroundColor: "#ffffff",
    textStyle: { fontFamily: "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif", color: "#24292f" },
    legend: {
      top: 12,
      left: 24,
      itemGap: 36,
      itemWidth: 14,
      data: contenders.map((contender) => LOOKS[contender].label),
      textStyle: { color: "#24292f", fontSize: 13 },
    },
    title: [
      ...panels.map(({ title }, n) => heading(title, { top: tops[n]! - 36, left: 24, fontSize: 14, fontWeight: 600 })),
      heading(
        "Medians of several rounds, from the least to the most. Right: Holdfast's median, and its speed where raw SQLite " +
          `(in a full database: an empty one) is 1.\n` +
          `${machine.cores} cores, Deno ${machine.deno}, SQLite ${machine.sqlite}, synchronous=FULL everywhere.`,
        { top: height - 34, left: 24, fontSize: 11, fontWeight: 400 },
      ),
    ],
    grid: panels.map(({ rows }, n) => ({ top: tops[n], left: 380, right: 150, height: rows.length * ROW })),
    xAxis: panels.map((_, n) => ({
      gridIndex: n,
      type: "log",
      axisLabel: { color: "#57606a", formatter: (value: number) => value.toLocaleString("en") },
      splitLine: { lineStyle: { color: "#d8dee4" } },
    })),
    yAxis: panels.flatMap(({ rows }, n) => [
      categories(n, "left", rows.map((row) => rowLabel(row, workloads))),
      categories(n, "right", rows.map(ownValue)),
    ]),
    series: panels.flatMap(({ rows }, n) => contenders.flatMap((contender) => marks(contender, rows, n))),
  };
}

function heading(text: string, { fontSize, fontWeight, ...place }: {
  top: number;
  left: number;
  fontSize: number;
  fontWeight: number;
}) {
  return { text, ...place, textStyle: { fontSize, fontWeight, color: "#24292f" } };
}

function categories(gridIndex: number, position: "left" | "right", data: readonly string[]) {
  return {
    gridIndex,
    position,
    type: "category",
    inverse: true,
    data,
    axisLine: { show: false },
    axisTick: { show: false },
    splitLine: { show: position === "left", interval: 0, lineStyle: { color: "#f0f2f4" } },
    axisLabel: { interval: 0, color: "#24292f", fontSize: 11.5 },
  };
}

function rowLabel({ workload, trial, figure }: Result, workloads: readonly Workload[]): string {
  const own = workloads.find(({ name }) => name === workload)!;
  const names = own.trials.length === 1 ? [figure.name] : [trial, figure.name];
  const text = `${workload.replace("_", " ")}: ${names.filter((name) => name !== "").join(", ")}`;
  return text.length <= 56 ? text : `${text.slice(0, 55)}…`;
}

function ownValue({ summaries, ratios }: Result): string {
  if (summaries.holdfast === undefined) return "";
  const ratio = ratios.empty ?? ratios.raw;
  const against = ratio === undefined ? "" : ` (${ratio.toFixed(2)})`;
  return `${shortNumber(summaries.holdfast.median)}${against}`;
}

/** A mark at each median, above a line from the least to the most. */
function marks(contender: Contender, rows: readonly Result[], panel: number) {
  const { label, color, symbol, size } = LOOKS[contender];
  const axes = { xAxisIndex: panel, yAxisIndex: 2 * panel };
  const summaries = rows.flatMap(({ summaries }, row) => {
    const summary = summaries[contender];
    return summary === undefined || summary.minimum <= 0 ? [] : [{ ...summary, row }];
  });
  return [
    {
      ...axes,
      type: "custom",
      data: summaries.map(({ row, minimum, maximum }) => [minimum, row, maximum]),
      encode: { x: [0, 2], y: 1 },
      renderItem: (_: unknown, api: { value(n: number): number; coord(point: [number, number]): number[] }) => {
        const [x1, y1] = api.coord([api.value(0), api.value(1)]);
        const [x2, y2] = api.coord([api.value(2), api.value(1)]);
        return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: color, lineWidth: 2, opacity: 0.5 } };
      },
    },
    {
      ...axes,
      name: label,
      type: "scatter",
      symbol,
      symbolSize: size,
      itemStyle: { color },
      data: summaries.map(({ row, median }) => [median, row]),
    },
  ];
}
