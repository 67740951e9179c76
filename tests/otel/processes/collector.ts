import { until } from "../../processes/deadline.ts";

/** A span as OTLP has it. */
export interface CollectedSpan {
  name: string;
  kind: number;
  traceId: string;
  spanId: string;
  parentSpanId: string;
  attributes: Record<string, unknown>;
  links: string[];
}

interface OtlpSpan extends Omit<CollectedSpan, "attributes" | "links"> {
  attributes?: { key: string; value: Record<string, unknown> }[];
  links?: { spanId: string }[];
}

interface OtlpTraces {
  resourceSpans: { scopeSpans: { spans: OtlpSpan[] }[] }[];
}

/** A collector of OTLP over HTTP with JSON, on the loopback interface. */
export class Collector implements AsyncDisposable {
  readonly spans: CollectedSpan[] = [];
  readonly metrics = new Set<string>();
  readonly #server: Deno.HttpServer<Deno.NetAddr>;

  constructor() {
    this.#server = Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: () => {} }, async (request) => {
      const body = await request.json();
      if (request.url.endsWith("/v1/traces")) this.#addSpans(body);
      for (const [, name] of JSON.stringify(body).matchAll(/"name":"(holdfast\.[^"]+)"/g)) this.metrics.add(name!);
      return Response.json({});
    });
  }

  /** The environment of a program whose Deno exports to this collector. */
  get env(): Record<string, string> {
    return {
      OTEL_DENO: "true",
      OTEL_EXPORTER_OTLP_PROTOCOL: "http/json",
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${this.#server.addr.port}`,
      OTEL_BSP_SCHEDULE_DELAY: "50",
      OTEL_METRIC_EXPORT_INTERVAL: "200",
    };
  }

  /** All spans of a name, once there are so many; in the order of their export. */
  async named(name: string, count = 1): Promise<CollectedSpan[]> {
    const find = () => this.spans.filter((span) => span.name === name);
    await until(() => find().length >= count, `the collector was to get ${count} spans "${name}"`);
    return find();
  }

  #addSpans({ resourceSpans }: OtlpTraces): void {
    const spans = resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans));
    for (const { attributes = [], links = [], ...span } of spans) {
      this.spans.push({
        ...span,
        attributes: Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]])),
        links: links.map(({ spanId }) => spanId),
      });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}
