import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { IptablesErrorCode } from '../../../src/capture/iptables/iptables.ts';
import type { ExecResult } from '../../../src/kernel/iptables/exec.ts';
import { failureOf } from '../../../src/kernel/iptables/iptables.ts';

type Row = readonly [code: number | null, stderr: string, expected: IptablesErrorCode, line?: number];

/** What iptables 1.8.9 printed, in both flavours, for each kind of failure. */
const SAID: readonly Row[] = [
  [
    4,
    "Can't lock /run/xtables.lock: Resource temporarily unavailable\nAnother app is currently holding the xtables lock. Stopped waiting after 5s.\n",
    'locked',
  ],
  [4, '', 'locked'],
  [1, 'iptables-restore: line 4 failed: Resource temporarily unavailable.\n', 'locked'],
  [1, 'iptables-restore: line 4 failed\n', 'refused', 4],
  [1, 'iptables-restore: COMMIT expected at line 3\n', 'refused', 3],
  [1, 'iptables-nft-restore: line 2 failed: Bad rule (does a matching rule exist in that chain?).\n', 'refused', 2],
  [
    4,
    'iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Invalid argument): rule in chain Y\n',
    'refused',
    3,
  ],
  [
    2,
    "iptables-restore v1.8.9 (legacy): Couldn't load match `bogus':No such file or directory\n\nError occurred at line: 3\n",
    'refused',
    3,
  ],
  [2, 'something new\n', 'refused'],
  [
    4,
    'iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n',
    'failed',
  ],
  [4, "Fatal: can't open lock file /run/xtables.lock: Permission denied\n", 'failed'],
  [1, 'out of memory\n', 'failed'],
  [null, '', 'failed'],
];

describe('the end of an iptables program', () => {
  for (const [code, stderr, expected, line] of SAID) {
    test(`exit ${code} with ${JSON.stringify(stderr.slice(0, 60))} is "${expected}"`, () => {
      const error = failureOf('iptables-restore', { outcome: 'exited', code, stdout: '', stderr });
      assert.equal(error?.code, expected);
      assert.equal(error?.line, line);
      assert.match(error?.message ?? '', /^iptables-restore [^\n]+$/);
    });
  }

  const others: readonly (readonly [result: ExecResult, expected: IptablesErrorCode, message: RegExp])[] = [
    [{ outcome: 'missing' }, 'missing', /install Debian's package "iptables"/],
    [{ outcome: 'timeout', timeoutMs: 1234 }, 'timeout', /within 1234 ms/],
    [{ outcome: 'failed', err: 'spawn EAGAIN' }, 'failed', /spawn EAGAIN/],
  ];
  for (const [result, expected, message] of others) {
    test(`"${result.outcome}" is "${expected}"`, () => {
      const error = failureOf('ip6tables-save', result);
      assert.equal(error?.code, expected);
      assert.match(error?.message ?? '', message);
    });
  }

  test('is no failure with exit code 0, whatever was printed', () => {
    const warned: ExecResult = { outcome: 'exited', code: 0, stdout: '', stderr: '# Warning: line 4 is odd' };
    assert.equal(failureOf('iptables-restore', warned), undefined);
  });
});
