export { FAKE_START, FakeHost } from "../../src/testing/fake_host.ts";
