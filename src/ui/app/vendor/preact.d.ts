// The part of Preact's types that the dashboard needs.
export type Child = object | string | number | bigint | boolean | null | undefined | Child[];
export function h(type: unknown, props: Record<string, unknown> | null, ...children: Child[]): object;
export function render(child: Child, parent: Element): void;
