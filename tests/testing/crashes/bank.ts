/** An outside system: a bank that recognizes repeated calls by a key, if they have one. */
export class Bank {
  readonly #entries: { account: string; amount: number; key: string | null }[] = [];

  /** Books an amount; a call with the key of an earlier one does nothing. */
  book(account: string, amount: number, key: string | null = null): string {
    if (key === null || !this.#entries.some((entry) => entry.key === key)) this.#entries.push({ account, amount, key });
    return account;
  }

  /** Does the same a turn of the event loop later. */
  async bookLater(account: string, amount: number, key: string | null = null): Promise<string> {
    await Promise.resolve();
    return this.book(account, amount, key);
  }

  /** What was booked. */
  get bookings(): string[] {
    return this.#entries.map(({ account, amount }) => `${account} ${amount}`);
  }
}
