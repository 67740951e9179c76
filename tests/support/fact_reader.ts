export { FactReader, type NamedFact, type ReadFact } from "../../src/testing/contract/fact_reader.ts";
