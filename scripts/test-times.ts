import { appendFileSync, readFileSync } from 'node:fs';
import { relative } from 'node:path';
import { isMainThread } from 'node:worker_threads';

/**
 * `scripts/run-tests` loads this into each test file's process: when it ends, KUP_TEST_TIMES gets a line of seconds of
 * CPU (with all processes that it started and has seen end), seconds on the clock, and the file.
 */
const { KUP_TEST_TIMES: times, NODE_TEST_CONTEXT: context } = process.env;
const folder = process.cwd();
// What this process starts is no test file.
delete process.env['KUP_TEST_TIMES'];
process.execArgv = process.execArgv.filter((argument) => !argument.includes('test-times.ts'));

if (times !== undefined && context !== undefined && isMainThread) {
  process.once('exit', () => {
    const ticks = readFileSync('/proc/self/stat', 'utf8')
      .replace(/^.*\) /, '')
      .split(' ')
      .slice(11, 15);
    const cpu = ticks.reduce((sum, each) => sum + Number(each) / 100, 0);
    const line = [cpu, performance.now() / 1000].map((seconds) => seconds.toFixed(1));
    appendFileSync(times, `${[...line, relative(folder, process.argv[1]!)].join(' ')}\n`);
  });
}
