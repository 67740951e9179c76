import { type Action, describeAction } from "./action.ts";
import type { Answer } from "./world.ts";

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** What has happened so far, for somebody who wants to understand a failure. */
export class History {
  readonly #lines: string[] = [];

  /** Notes an action and what it came to; `under` names what it was a part of. */
  note(action: Action, { status, body }: Pick<Answer, "status" | "body">, under = ""): void {
    const number = `${this.#lines.length + 1}`.padStart(3);
    this.#lines.push(`${number}. ${under}${describeAction(action)} -> ${status} ${JSON.stringify(body)}`);
  }

  /**
   * Says it, with short names for ids.
   *
   * @param more What is to be said with the same names.
   */
  describe(more: string): string {
    const names = new Map<string, string>();
    const nameOf = (id: string) => {
      if (!names.has(id)) names.set(id, `id-${names.size + 1}`);
      return names.get(id)!;
    };
    const lines = this.#lines.map((line) => line.replaceAll(UUID, nameOf));
    return ["What happened:", ...lines, "", more.replaceAll(UUID, nameOf)].join("\n");
  }
}
