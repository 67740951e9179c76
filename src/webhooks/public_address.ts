import { lookup } from "node:dns/promises";

/**
 * Whether all addresses of the host of a URL are public. `fetch()` resolves the name again: one that changes in between
 * is not noticed.
 *
 * @param hostname As a `URL` has it: an address of IPv6 is in brackets, and all forms of an IPv4 address are decimal.
 */
export async function isPublicHost(
  hostname: string,
  resolve: (hostname: string) => Promise<readonly string[]> = resolveByDns,
): Promise<boolean> {
  const isAddress = hostname.startsWith("[") || toNumber(hostname) !== null;
  const addresses = isAddress ? [hostname.replace(/^\[|\]$/g, "")] : await resolve(hostname);
  return addresses.length > 0 && addresses.every(isPublicAddress);
}

async function resolveByDns(hostname: string): Promise<string[]> {
  return (await lookup(hostname, { all: true })).map(({ address }) => address);
}

// RFC 6890, and what the registries of IANA have added: an address, and how many of its bits count.
const NOT_PUBLIC: readonly (readonly [address: string, bits: number])[] = [
  ["0.0.0.0", 8], // this network
  ["10.0.0.0", 8], // private
  ["100.64.0.0", 10], // shared by customers of a provider
  ["127.0.0.0", 8], // this machine
  ["169.254.0.0", 16], // link-local: the metadata of clouds
  ["172.16.0.0", 12], // private
  ["192.0.0.0", 24], // protocols
  ["192.0.2.0", 24], // documentation
  ["192.88.99.0", 24], // relays of 6to4
  ["192.168.0.0", 16], // private
  ["198.18.0.0", 15], // benchmarks
  ["198.51.100.0", 24], // documentation
  ["203.0.113.0", 24], // documentation
  ["224.0.0.0", 3], // multicast, reserved, broadcast
];

// Global unicast (2000::/3) without these.
const NOT_PUBLIC_6: readonly (readonly [prefix: string, bits: number])[] = [
  ["20010000", 23], // protocols, Teredo among them
  ["20010db8", 32], // documentation
  ["20020000", 16], // 6to4: the address of IPv4 in it may be private
  ["3fff0000", 20], // documentation
];

/** Whether an address is one of the public internet. What cannot be read is not. */
export function isPublicAddress(address: string): boolean {
  const number = toNumber(address);
  if (number !== null) return !NOT_PUBLIC.some(([of, bits]) => isSame(number, toNumber(of)!, bits));
  const first = firstBitsOf(address);
  return first !== null && first >>> 29 === 1 &&
    !NOT_PUBLIC_6.some(([of, bits]) => isSame(first, parseInt(of, 16), bits));
}

/** Whether the first bits of two numbers of 32 bits are the same. */
function isSame(one: number, other: number, bits: number): boolean {
  return ((one ^ other) >>> (32 - bits)) === 0;
}

/** An IPv4 address in decimals as a number; `null`: it is none. */
function toNumber(address: string): number | null {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(address)?.slice(1).map(Number);
  if (parts === undefined || parts.some((part) => part > 255)) return null;
  return parts.reduce((sum, part) => sum * 256 + part, 0);
}

/** The first 32 bits of an IPv6 address; `null`: it is none. */
function firstBitsOf(address: string): number | null {
  const hostname = URL.parse(`http://[${address}]/`)?.hostname.slice(1, -1); // in its shortest form
  if (hostname === undefined) return null;
  const [first = "", second = ""] = hostname.split("::")[0]!.split(":"); // what `::` stands for is zeros
  return parseInt(first || "0", 16) * 65_536 + parseInt(second || "0", 16);
}
