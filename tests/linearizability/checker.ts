/** What a client asked for and was told. */
export interface Operation<Ask, Told> {
  /** What it asked for. */
  ask: Ask;
  /** What it was told; `null`: it was told nothing, so that this may have happened at any time since, or never. */
  told: Told | null;
  /** When it asked, by a clock of all clients. */
  from: number;
  /** When it was told; `Infinity` if it was told nothing. */
  to: number;
}

/** What one object does when it is asked one thing after another. */
export interface Model<State, Ask, Told> {
  /** How it begins. */
  first: State;
  /**
   * The states that it can be in after it was asked, if this is what it told; none, if it cannot tell that. Without an
   * answer, all states that being asked can lead to.
   */
  next(state: State, ask: Ask, told: Told | null): readonly State[];
  /** A text that two states share if they are equal. */
  key(state: State): string;
}

/** What was found out about a history. */
export type Finding =
  /** There is an order in which the object does what was told. */
  | "linearizable"
  | "not linearizable"
  /** There are more orders than are looked at. */
  | "undecided";

// A history that needs more than this has too many operations that were told nothing.
const MOST_LOOKS = 2_000_000;

/**
 * Whether a history of one object is linearizable: whether there is an order of its operations, each at an instant between
 * the question and the answer, in which the object does what was told. The search is that of Wing and Gong, with the
 * memory of Lowe: what was tried from the same operations and the same state is not tried again.
 */
export function check<State, Ask, Told>(
  model: Model<State, Ask, Told>,
  history: readonly Operation<Ask, Told>[],
): Finding {
  const operations = history.toSorted((one, other) => one.from - other.from);
  const isDone = operations.map(() => false);
  const known = new Set<string>();
  let looks = 0;

  const search = (state: State): Finding => {
    const left = [...operations.keys()].filter((no) => !isDone[no]);
    if (left.every((no) => operations[no]!.told === null)) return "linearizable";
    const place = `${left.join()} ${model.key(state)}`;
    if (known.has(place)) return "not linearizable";
    known.add(place);
    if (++looks > MOST_LOOKS) return "undecided";
    const firstAnswer = Math.min(...left.map((no) => operations[no]!.to));
    for (const no of left) {
      const { ask, told, from } = operations[no]!;
      if (from > firstAnswer) break; // another one had ended before these began
      isDone[no] = true;
      for (const after of model.next(state, ask, told)) {
        const found = search(after);
        if (found !== "not linearizable") return found;
      }
      isDone[no] = false;
    }
    return "not linearizable";
  };
  return search(model.first);
}

/** What of a history that is not linearizable shows it: the answers without which it would be. */
export function shrink<State, Ask, Told>(
  model: Model<State, Ask, Told>,
  history: readonly Operation<Ask, Told>[],
): Operation<Ask, Told>[] {
  let operations = [...history];
  for (const operation of history) {
    // An answer that is forgotten allows more orders, never fewer.
    const others = operations.map((one) => one === operation ? { ...one, told: null, to: Infinity } : one);
    if (check(model, others) === "not linearizable") operations = others;
  }
  return operations;
}
