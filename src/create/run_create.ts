import { basename, resolve } from "node:path";
import { parseArgs } from "node:util";
import { checkAppName } from "./app_name.ts";
import { appFiles, type AppRuntime } from "./app_files.ts";
import { CreateError } from "./create_error.ts";
import { writeApp } from "./write_app.ts";

/** Where {@linkcode runCreate} writes its messages. */
export interface CreateTerminal {
  /** Writes the result. */
  print(text: string): void;
  /** Writes why there is none. */
  note(text: string): void;
  /** How the command is called, for its help. Default: `deno run -A jsr:@holdfast/jobs/create`. */
  command?: string;
}

const describe = (command: string) =>
  `Makes a small app with Holdfast: a job, its test, a server with the dashboard, and a Dockerfile.

${command} FOLDER [--node]

FOLDER is new or empty. Its name becomes the name of the app: lower-case letters, digits and dashes.

  --node  makes an app for Node 22.18 or later instead of Deno
  --help  prints this

Exit code: 0 done; 1 the app cannot be made; 2 called in a wrong way.`;

/**
 * Makes an app, as the arguments of the command say.
 *
 * @returns The exit code: 0 done; 1 the app cannot be made; 2 called in a wrong way.
 */
export async function runCreate(args: readonly string[], terminal: CreateTerminal): Promise<0 | 1 | 2> {
  try {
    const { folder, runtime, wantsHelp } = parse(args);
    if (wantsHelp) {
      terminal.print(describe(terminal.command ?? "deno run -A jsr:@holdfast/jobs/create"));
      return 0;
    }
    const path = resolve(folder);
    const name = basename(path);
    checkAppName(name);
    await writeApp(path, appFiles(name, runtime));
    terminal.print(describeNextSteps(folder, name, runtime));
    return 0;
  } catch (error) {
    if (!(error instanceof CreateError)) throw error; // a mistake of this program
    terminal.note(error.message);
    return error.exitCode;
  }
}

function parse(args: readonly string[]): { folder: string; runtime: AppRuntime; wantsHelp: boolean } {
  const { values, positionals } = parseOptions(args);
  const [folder, ...others] = positionals;
  const wantsHelp = values.help === true;
  if (!wantsHelp && folder === undefined) {
    throw new CreateError("Name the folder of the app, such as my-app; --help says more", 2);
  }
  if (others.length > 0) {
    throw new CreateError(`Name one folder, not ${positionals.length}: ${positionals.join(" ")}`, 2);
  }
  return { folder: folder ?? "", runtime: values.node === true ? "node" : "deno", wantsHelp };
}

function parseOptions(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: { node: { type: "boolean" }, help: { type: "boolean", short: "h" } },
      allowPositionals: true,
    });
  } catch (error) {
    throw new CreateError(error instanceof Error ? error.message : String(error), 2, { cause: error });
  }
}

function describeNextSteps(folder: string, name: string, runtime: AppRuntime): string {
  const commands = [
    ...(folder === "." ? [] : [[`cd ${/\s/.test(folder) ? `"${folder}"` : folder}`, ""]]),
    ...(runtime === "node" ? [["npm install", ""]] : []),
    [runtime === "node" ? "npm test" : "deno task test", "the tests of the job"],
    [runtime === "node" ? "npm run dev" : "deno task dev", "the server: http://127.0.0.1:8000/api/jobs/ui/"],
  ];
  const width = commands.reduce((widest, [command]) => Math.max(widest, command!.length), 0);
  const lines = commands.map(([command, about]) => `  ${command!.padEnd(width)}  ${about}`.trimEnd());
  return [`Made ${name}. Next:`, "", ...lines, "", "Its README.md says more."].join("\n");
}
