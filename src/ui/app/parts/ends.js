// @ts-check

const END = ":end"; // how the names of jobs end whose runs clean up after others

/** The jobs of the runs that clean up after others. @param {any} stats @returns {any[]} */
export const endsOf = (stats) => (stats?.jobs ?? []).filter((/** @type {any} */ { jobName }) => jobName.endsWith(END));
