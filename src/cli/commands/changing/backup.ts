import { UsageError } from "../../usage_error.ts";
import type { Command } from "../../command.ts";

/** Copies a SQLite file. */
export const backup: Command = {
  name: "backup",
  usage: "FILE",
  about: "copy a SQLite database, which may be in use, to a new file",
  arity: [1, 1],
  options: {},
  async run({ args, service, output }) {
    const copy = service.database?.backup ?? null;
    if (copy === null) {
      const advice = service.kind === "postgres" ? "use pg_dump" : "use the file itself as --store, on its machine";
      throw new UsageError(`Only a SQLite file can be copied: ${advice}`);
    }
    const file = args.positionals[0]!;
    await copy(file);
    output.object({ file }, () => output.line(`Copied to ${file}`));
    return 0;
  },
};
