import { spawnSync } from 'node:child_process';
import { endProcess } from '../../src/kernel/process.ts';

/*
 * Imported first in a test file: runs the file again in a network namespace of its own, where it may do with rules as
 * it likes, and ends this process with that one's result. Reports reach the runner through the inherited output, so
 * the tests appear as if they ran here. The namespace goes with the process.
 */
const MARK = 'KUP_TEST_PRIVATE_NETNS';

if (process.env[MARK] === undefined) {
  const { status, signal, error } = spawnSync(
    'unshare',
    ['--net', process.execPath, ...process.execArgv, ...process.argv.slice(1)],
    {
      stdio: 'inherit',
      env: { ...process.env, [MARK]: '1' },
    },
  );
  if (error !== undefined) throw new Error(`Cannot run unshare, which util-linux brings: ${error.message}`);
  if (signal !== null) console.error(`# ${process.argv[1]} was ended by ${signal}`);
  await endProcess(status ?? 1);
}
