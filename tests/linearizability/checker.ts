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
  /** Whether asking this changes nothing, so that a question without an answer says nothing. Left out: none is such. */
  isRead?(ask: Ask): boolean;
  /**
   * What a question belongs to: a right history remains right without all questions of one part. `null`, or left out: the
   * question is of no such part.
   */
  part?(ask: Ask): string | null;
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
// It is asked again and again.
const MOST_LOOKS_TO_SHRINK = 20_000;

/**
 * Whether a history of one object is linearizable: whether there is an order of its operations, each at an instant between
 * the question and the answer, in which the object does what was told. The search is that of Wing and Gong, with the
 * memory of Lowe: what was tried from the same operations and the same state is not tried again.
 */
export function check<State, Ask, Told>(
  model: Model<State, Ask, Told>,
  history: readonly Operation<Ask, Told>[],
  mostLooks = MOST_LOOKS,
): Finding {
  const operations = history.filter(({ ask, told }) => told !== null || !model.isRead?.(ask))
    .toSorted((one, other) => one.from - other.from);
  const isDone = operations.map(() => false);
  const known = new Set<string>();
  let looks = 0;

  const search = (state: State): Finding => {
    const left = [...operations.keys()].filter((no) => !isDone[no]);
    if (left.every((no) => operations[no]!.told === null)) return "linearizable";
    const place = `${left.join()} ${model.key(state)}`;
    if (known.has(place)) return "not linearizable";
    known.add(place);
    if (++looks > mostLooks) return "undecided";
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

/**
 * The smallest part of a history that is not linearizable which is found by leaving things out (delta debugging): whole
 * parts of it first (`Model.part`), then single answers. Each of those that remain is needed for the contradiction. What
 * was told nothing remains, since it may explain what others were told.
 */
export function shrink<State, Ask, Told>(
  model: Model<State, Ask, Told>,
  history: readonly Operation<Ask, Told>[],
): Operation<Ask, Told>[] {
  const isWrong = (operations: readonly Operation<Ask, Told>[]) =>
    check(model, operations, MOST_LOOKS_TO_SHRINK) === "not linearizable";
  const partOf = ({ ask }: Operation<Ask, Told>) => model.part?.(ask) ?? null;
  const parts = new Set(history.map(partOf).filter((part) => part !== null));
  const withParts = (kept: readonly string[]) =>
    history.filter((one) => partOf(one) === null || kept.includes(partOf(one)!));
  const left = withParts(needed([...parts], (kept) => isWrong(withParts(kept))));

  // Questions that change nothing first: an answer that is explained by a change says more than one that is not.
  const answered = left.filter(({ told }) => told !== null)
    .sort((one, other) => Number(model.isRead?.(other.ask) ?? false) - Number(model.isRead?.(one.ask) ?? false));
  // An answer that is forgotten allows more orders, never fewer.
  const withAnswers = (kept: readonly Operation<Ask, Told>[]) =>
    left.map((one) => one.told === null || kept.includes(one) ? one : { ...one, told: null, to: Infinity });
  return withAnswers(needed(answered, (kept) => isWrong(withAnswers(kept))));
}

/** Those of some items without any of which something is not the case any more: in pieces that become smaller. */
function needed<T>(items: readonly T[], isCase: (kept: readonly T[]) => boolean): T[] {
  let kept = [...items];
  for (let size = Math.ceil(kept.length / 2); size >= 1;) {
    let hasLess = false;
    for (let from = 0; from < kept.length;) {
      const fewer = kept.toSpliced(from, size);
      if (isCase(fewer)) {
        kept = fewer;
        hasLess = true;
      } else from += size;
    }
    // After a piece was left out, others of its size may not be needed any more either.
    if (!hasLess) size = size === 1 ? 0 : Math.ceil(size / 2);
  }
  return kept;
}
