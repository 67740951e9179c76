export * from "../../src/testing/contract/fixtures.ts";
