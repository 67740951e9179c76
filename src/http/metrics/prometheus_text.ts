import { SECONDS, type SecondsHistogram } from "../../statistics/seconds.ts";

type Labels = { readonly [name: string]: string };

/** Writes metrics in the text format of Prometheus, version 0.0.4. */
export class PrometheusText {
  readonly #lines: string[] = [];
  #name = "";

  /** Begins a metric; what is added next belongs to it. */
  begin(name: string, type: "gauge" | "counter" | "histogram", help: string): void {
    this.#name = name;
    this.#lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`);
  }

  /** Adds a number. */
  add(labels: Labels, value: number): void {
    this.#add("", labels, value);
  }

  /** Adds a histogram: for each bound, how many durations were at most that long. */
  addHistogram(labels: Labels, { counts, sum }: SecondsHistogram): void {
    let below = 0;
    for (const [bucket, count] of counts.entries()) {
      below += count;
      const bound = SECONDS[bucket];
      this.#add("_bucket", { ...labels, le: bound === undefined ? "+Inf" : String(bound) }, below);
    }
    this.#add("_sum", labels, sum);
    this.#add("_count", labels, below);
  }

  /** The text. */
  toString(): string {
    return this.#lines.map((line) => `${line}\n`).join("");
  }

  #add(suffix: string, labels: Labels, value: number): void {
    const pairs = Object.entries(labels).map(([name, text]) => `${name}="${escape(text)}"`);
    this.#lines.push(`${this.#name}${suffix}${pairs.length === 0 ? "" : `{${pairs.join(",")}}`} ${value}`);
  }
}

/** The value of a label: a backslash, a quotation mark and the end of a line are escaped. */
function escape(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
