import assert from "node:assert/strict";
import { jobNameOf, queueName, versionOf } from "../../src/stores/queue_name.ts";

const QUEUES: [queue: string, jobName: string, version: number, print?: string][] = [
  ["import-csv", "import-csv", 1],
  ["import-csv\t2", "import-csv", 2],
  ["import-csv\t1\tprint", "import-csv", 1, "print"],
  ["import-csv\t12\ta\tprint", "import-csv", 12, "a\tprint"],
];

for (const [queue, jobName, version, print] of QUEUES) {
  Deno.test(`queueName() names ${JSON.stringify(queue)}, from which the job and the version can be read`, () => {
    const name = queueName(jobName, version, print);

    assert.equal(name, queue);
    assert.equal(jobNameOf(queue), jobName);
    assert.equal(versionOf(queue), version);
  });
}
