import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { FindingsLog, fail, ok, warn } from '../../src/check/finding.ts';
import {
  CHECK_DEADLINE_MS,
  type Check,
  exitCode,
  findingLine,
  findingsJson,
  type NamedFinding,
  runChecks,
  summaryLine,
} from '../../src/check/run-checks.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { settle } from '../support/until.ts';

async function all(checks: readonly Check[], clock = new ManualClock()): Promise<string[]> {
  const lines: string[] = [];
  for await (const { check, level, found } of runChecks(checks, clock)) lines.push(`${check} ${level}: ${found}`);
  return lines;
}

describe('running checks', () => {
  test('gives the findings of each under its name; a check that throws has failed, and the others go on', async () => {
    const throws = () => {
      throw new Error('no such file');
    };
    const checks: Check[] = [
      { name: 'a', run: () => [ok('one'), warn('two', 'correct it')] },
      { name: 'thrower', run: throws },
      { name: 'rejecter', run: () => Promise.reject(new Error('no way')) },
      { name: 'b', run: async () => [ok('three')] },
    ];
    assert.deepEqual(await all(checks), [
      'a ok: one',
      'a warn: two',
      'thrower fail: this check did not finish: no such file',
      'rejecter fail: this check did not finish: no way',
      'b ok: three',
    ]);
  });

  test('a check that hangs has failed after its deadline; others leave no timer', async () => {
    const clock = new ManualClock();
    const run = all([{ name: 'hangs', run: () => new Promise(() => {}) }], clock);
    await settle();
    clock.advance(CHECK_DEADLINE_MS);
    assert.deepEqual(await run, ['hangs fail: this check did not finish: no result within 30 s']);
    await all([{ name: 'good', run: () => [ok('fine')] }], clock);
    assert.equal(clock.pendingTimers, 0);
  });
});

describe('the report', () => {
  const named = (check: string, finding: ReturnType<typeof ok>): NamedFinding => ({ check, ...finding });
  const fine = named('limits', ok('20000 open files'));
  const odd = named('API server', warn('the clock\nlies', 'set it'));
  const bad = named('iptables', fail('none', 'install it'));

  test('has one line for each finding, whatever its text', () => {
    assert.equal(findingLine(fine), 'ok    limits         20000 open files');
    assert.equal(findingLine(odd), 'warn  API server     the clock\\u000alies → set it');
  });

  test('has a summary, and fails only for a failure', () => {
    assert.equal(summaryLine([fine]), 'The proxy can serve here.');
    assert.equal(summaryLine([fine, odd]), 'The proxy can serve here; 1 warning.');
    assert.equal(summaryLine([odd, odd, bad]), 'The proxy cannot serve here: 1 failure; 2 warnings.');
    assert.equal(exitCode([fine, odd]), 0);
    assert.equal(exitCode([fine, bad]), 1);
  });

  test('is JSON for machines', () => {
    assert.deepEqual(JSON.parse(findingsJson([fine, bad])), {
      ok: false,
      findings: [
        { check: 'limits', level: 'ok', found: '20000 open files' },
        { check: 'iptables', level: 'fail', found: 'none', advice: 'install it' },
      ],
    });
  });

  test('has what a run would log as findings, with the fields', () => {
    const log = new FindingsLog('correct the file');
    log.info('Nothing to find');
    const place = { file: 'web.yaml', line: 3, document: 2 };
    log.error('Service "a/b" is not valid; it is left out', {
      ...place,
      field: 'spec.clusterIP',
      err: { found: 'is missing', advice: 'write one' },
    });
    log.warn('Plain', { others: 'a.yaml' });
    assert.deepEqual(log.findings, [
      {
        ...fail('Service "a/b" is not valid; it is left out: spec.clusterIP is missing', 'write one'),
        place: 'web.yaml:3',
      },
      warn('Plain (others: a.yaml)', 'correct the file'),
    ]);
  });
});
