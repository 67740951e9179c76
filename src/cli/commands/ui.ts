import { type Command, UsageError } from "../command.ts";

const MAX_PORT = 65_535;

/** Serves the dashboard for a database. */
export const ui: Command = {
  name: "ui",
  usage: "[STORE] [--port PORT]",
  about: "serve the dashboard for a database, to this machine alone, until Ctrl-C",
  takesStore: true,
  options: { port: { value: "PORT", about: "the port (any that is free)" } },
  async run({ args, service, output, terminal }) {
    const { engine } = service;
    if (engine === null) {
      throw new UsageError(
        "ui is for a database: open the dashboard of a service in a browser, if it serves one (ui/)",
      );
    }
    const port = args.integer("port", 0) ?? 0;
    if (port > MAX_PORT) throw new UsageError(`--port must be a number from 0 to ${MAX_PORT}`);
    // Loaded when it is called: the help of all commands needs neither the dashboard nor a server.
    const { serveDashboard } = await import("./local_dashboard.ts");
    const note = (error: unknown) => output.note(`The dashboard has met an error: ${error}`);
    const { address, close } = await serveDashboard(engine, port, note);
    output.object({ url: address }, () => output.line(address));
    output.note("Only this address opens the dashboard: it has a token. Ctrl-C ends it");
    const { abortSignal } = terminal;
    if (!abortSignal.aborted) {
      await new Promise<void>((resolve) => abortSignal.addEventListener("abort", () => resolve(), { once: true }));
    }
    await close();
  },
};
