/** A page in the table of contents. */
export interface Page {
  /** Its title. */
  title: string;
  /** Its path in `docs/`, such as `guides/flow.md`. */
  path: string;
}

/** Pages under one heading of the table of contents. */
export interface PageGroup {
  /** The heading. */
  title: string;
  /** Its pages, in their order. */
  pages: Page[];
}

const GROUP = /^## (.+)$/;
const PAGE = /^- \[([^\]]+)\]\(([^)#]+\.md)\)/;

/** Reads the table of contents, which is `docs/index.md`: its headings, and the lists of links below them. */
export function readContents(index: string): PageGroup[] {
  const groups: PageGroup[] = [];
  for (const line of index.split("\n")) {
    const group = GROUP.exec(line);
    if (group !== null) groups.push({ title: group[1]!, pages: [] });
    const page = PAGE.exec(line);
    if (page !== null) {
      groups.at(-1)?.pages.push({ title: page[1]!, path: page[2]! });
    }
  }
  return groups.filter(({ pages }) => pages.length > 0);
}
