import assert from "node:assert/strict";
import { isPublicAddress, isPublicHost } from "../../src/webhooks/public_address.ts";

const PUBLIC = [
  "8.8.8.8",
  "9.255.255.255",
  "11.0.0.0",
  "100.63.255.255",
  "100.128.0.0",
  "126.255.255.255",
  "128.0.0.1",
  "169.253.255.255",
  "172.15.255.255",
  "172.32.0.0",
  "192.0.1.0",
  "192.167.255.255",
  "198.17.255.255",
  "198.20.0.0",
  "223.255.255.255",
  "2606:4700::1111",
  "2a00:1450:4001:80e::200e",
  "2001:200::1",
  "2001:db9::",
  "2003::1",
];
const NOT_PUBLIC = [
  "0.0.0.0",
  "0.255.255.255",
  "10.0.0.0",
  "10.255.255.255",
  "100.64.0.0",
  "100.127.255.255",
  "127.0.0.1",
  "127.255.255.255",
  "169.254.169.254",
  "172.16.0.1",
  "172.31.255.255",
  "192.0.0.1",
  "192.0.2.1",
  "192.88.99.1",
  "192.168.0.1",
  "192.168.255.255",
  "198.18.0.1",
  "198.19.255.255",
  "198.51.100.7",
  "203.0.113.7",
  "224.0.0.1",
  "240.0.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "::ffff:8.8.8.8",
  "::ffff:127.0.0.1",
  "64:ff9b::8.8.8.8",
  "64:ff9b:1::1",
  "100::1",
  "2001::1",
  "2001:1ff::1",
  "2001:db8::1",
  "2002:7f00:1::1",
  "3fff::1",
  "3fff:fff::1",
  "4000::1",
  "5f00::1",
  "fc00::1",
  "fdff::1",
  "fe80::1",
  "fe80::1%eth0",
  "ff02::1",
  "",
  "no address",
  "256.0.0.1",
  "1.2.3",
];

Deno.test("isPublicAddress() tells the addresses of the public internet from all others", () => {
  assert.deepEqual(PUBLIC.filter((address) => !isPublicAddress(address)), []);
  assert.deepEqual(NOT_PUBLIC.filter(isPublicAddress), []);
});

/** URLs that lead to this machine or a private network in other ways. */
const DISGUISED = [
  "https://2130706433/",
  "https://0x7f000001/",
  "https://0177.0.0.1/",
  "https://127.1/",
  "https://0/",
  "https://[::ffff:7f00:1]/",
  "https://[0:0:0:0:0:0:0:1]/",
  "https://[::127.0.0.1]/",
  "https://127.0.0.1./",
  "https://%31%32%37.0.0.1/",
  "https://[::ffff:10.0.0.1]/",
  "https://[::ffff:0:10.0.0.1]/",
  "https://[64:ff9b::10.0.0.1]/",
  "https://[64:ff9b:1::a00:1]/",
  "https://[2002:a00:1::]/",
  "https://[2001:0:a00:1::]/",
  "https://[fe80::a00:1]/",
  "https://[fec0::1]/",
  "https://[fd00:ec2::254]/latest/meta-data/",
  "https://[ff02::1]/",
  "https://127。0。0。1/",
  "https://169.254.169.254/latest/meta-data/",
];

for (const url of DISGUISED) {
  Deno.test(`isPublicHost() finds that ${url} is not public, without a resolver`, async () => {
    const resolve = () => Promise.reject(new Error("an address is not resolved"));

    assert.equal(await isPublicHost(new URL(url).hostname, resolve), false);
  });
}

Deno.test("isPublicHost() wants all addresses of a name to be public, and at least one", async () => {
  const answers = [["8.8.8.8"], ["8.8.8.8", "2606:4700::1111"], ["8.8.8.8", "10.0.0.1"], ["::1"], []];

  const found = await Promise.all(answers.map((addresses) => isPublicHost("a.test", () => Promise.resolve(addresses))));

  assert.deepEqual(found, [true, true, false, false, false]);
});

Deno.test("isPublicHost() asks the DNS of the system by default", async () => {
  assert.equal(await isPublicHost("localhost"), false);
});
