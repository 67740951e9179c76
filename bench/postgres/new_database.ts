import pg from "pg";

/** Makes an empty database, which is dropped in the end. */
export async function newDatabase(url: string): Promise<AsyncDisposable & { url: string }> {
  const name = `bench_${crypto.randomUUID().replaceAll("-", "")}`;
  await execute(url, `create database ${name}`);
  const own = new URL(url);
  own.pathname = `/${name}`;
  return { url: own.href, [Symbol.asyncDispose]: () => execute(url, `drop database ${name} with (force)`) };
}

async function execute(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(sql);
  await client.end();
}
