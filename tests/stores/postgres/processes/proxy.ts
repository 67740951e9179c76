/** What can happen to a connection between a client and the server. */
export const FAULTS = ["cut", "freeze", "half-close", "delay", "lose the answer"] as const;

/** A fault of a connection. */
export type Fault = typeof FAULTS[number];

const FREEZE_MS = 3_000;
const DELAY_MS = 40;

/** A TCP proxy in front of a server, whose connections fail when they are told to. */
export class Proxy implements AsyncDisposable {
  readonly #listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  readonly #links = new Set<Link>();
  readonly #accepting: Promise<void>;
  readonly #freezeMs: number;
  /** Where new connections lead to. */
  server: Deno.ConnectOptions;
  /** Whether new connections are closed at once. */
  isRefusing = false;

  /**
   * Listens on a free port.
   *
   * @param options.freezeMs After how many milliseconds a connection that is frozen is closed. Default: 3,000.
   */
  constructor(server: Deno.ConnectOptions, { freezeMs = FREEZE_MS }: { freezeMs?: number } = {}) {
    this.server = server;
    this.#freezeMs = freezeMs;
    this.#accepting = this.#accept();
  }

  /** Where it listens. */
  get port(): number {
    return (this.#listener.addr as Deno.NetAddr).port; // it listens on TCP
  }

  /** Lets a connection fail, if there is one. `random` is from 0 to 1 and chooses which. Answers whether there is one. */
  fail(fault: Fault, random: number): boolean {
    const links = [...this.#links];
    const link = links[Math.floor(random * links.length)];
    link?.fail(fault);
    return link !== undefined;
  }

  /** Lets all connections fail, or those that come from some of its ports, as the server sees it. */
  failAll(fault: Fault, ports?: readonly number[]): void {
    for (const link of [...this.#links]) {
      if (ports === undefined || ports.includes(link.port)) link.fail(fault);
    }
  }

  /** Cuts all connections, and accepts no more. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#listener.close();
    await this.#accepting;
    await Promise.all([...this.#links].map((link) => link.end()));
  }

  async #accept(): Promise<void> {
    const opening: Promise<void>[] = [];
    for await (const client of this.#listener) opening.push(this.#open(client));
    await Promise.all(opening);
  }

  async #open(client: Deno.TcpConn): Promise<void> {
    if (this.isRefusing) return client.close();
    const server = await Deno.connect(this.server).catch(() => null);
    if (server === null) return client.close();
    const link = new Link(client, server, this.#freezeMs);
    this.#links.add(link);
    link.ended.then(() => this.#links.delete(link));
  }
}

/** Both connections of one client. */
class Link {
  readonly #client: Deno.TcpConn;
  readonly #server: Deno.TcpConn;
  readonly #timers = new Set<() => void>();
  readonly #freezeMs: number;
  #fault: Fault | null = null;
  #isClosed = false;
  /** Resolves when both are closed. */
  readonly ended: Promise<void>;

  constructor(client: Deno.TcpConn, server: Deno.TcpConn, freezeMs: number) {
    this.#client = client;
    this.#server = server;
    this.#freezeMs = freezeMs;
    this.ended = Promise.all([this.#pass(client, server, false), this.#pass(server, client, true)]).then(() => {});
  }

  /** The port from which it comes, as the server sees it. */
  get port(): number {
    return (this.#server.localAddr as Deno.NetAddr).port; // it is a TCP connection
  }

  fail(fault: Fault): void {
    // What it has not passed on is lost: it cannot thaw, since TCP leaves nothing out.
    if (this.#fault === "freeze" && fault !== "cut") return;
    this.#fault = fault;
    if (fault === "cut") this.#close();
    // The client is told that nothing more comes, and the server is not told anything.
    if (fault === "half-close") this.#client.closeWrite().catch(() => this.#close());
    // A frozen connection passes nothing on, and is closed much later.
    if (fault === "freeze") this.#wait(this.#freezeMs).then(() => this.#close());
  }

  async end(): Promise<void> {
    this.#close();
    await this.ended;
  }

  async #pass(from: Deno.TcpConn, to: Deno.TcpConn, isAnswer: boolean): Promise<void> {
    const buffer = new Uint8Array(65_536);
    try {
      for (let read = await from.read(buffer); read !== null; read = await from.read(buffer)) {
        if (this.#fault === "freeze" || (this.#fault === "half-close" && isAnswer)) continue;
        // By the time that the answer comes, the transaction is committed.
        if (this.#fault === "lose the answer" && isAnswer) break;
        if (this.#fault === "delay") await this.#wait(Math.random() * DELAY_MS);
        for (let written = 0; written < read;) written += await to.write(buffer.subarray(written, read));
      }
    } catch {
      // One side is gone: so the other goes.
    }
    this.#close();
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#client.close();
    this.#server.close();
    for (const end of this.#timers) end();
  }

  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        this.#timers.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      this.#timers.add(end);
    });
  }
}
