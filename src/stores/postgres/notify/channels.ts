/** The channel on which all stores of a schema are notified of changes. A channel has at most 63 characters. */
export function changeChannel(schema: string): string {
  return `holdfast_${schema}`; // a schema has at most 50
}

/** A channel of one listener, which tests itself with it. */
export function testChannel(id: string): string {
  return `holdfast_test_${id.replaceAll("-", "")}`;
}
