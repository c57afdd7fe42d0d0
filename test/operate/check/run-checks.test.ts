import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ok, warn } from '../../../src/operate/check/finding.ts';
import { FindingsLog } from '../../../src/operate/check/findings-log.ts';
import { exitCode, findingLine, findingsJson, summaryLine } from '../../../src/operate/check/report.ts';
import { CHECK_DEADLINE_MS, type Check, type NamedFinding, runChecks } from '../../../src/operate/check/run-checks.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { settle } from '../../support/until.ts';
import { told } from './levels.ts';

async function all(checks: readonly Check[], clock = new ManualClock()): Promise<NamedFinding[]> {
  const findings: NamedFinding[] = [];
  for await (const finding of runChecks(checks, clock)) findings.push(finding);
  return findings;
}

describe('running checks', () => {
  test('gives the findings of each under its name, in order', async () => {
    const findings = await all([
      { name: 'a', run: () => [ok('one'), warn('two', 'mend it')] },
      { name: 'b', run: async () => [ok('three')] },
    ]);
    assert.deepEqual(
      findings.map(({ check, level, found }) => [check, level, found]),
      [
        ['a', 'ok', 'one'],
        ['a', 'warn', 'two'],
        ['b', 'ok', 'three'],
      ],
    );
  });

  test('one that throws has failed, and the others go on', async () => {
    const findings = await all([
      {
        name: 'thrower',
        run: () => {
          throw new Error('no such file');
        },
      },
      { name: 'rejecter', run: () => Promise.reject(new Error('no way')) },
      { name: 'good', run: () => [ok('fine')] },
    ]);
    assert.deepEqual(told(findings), [
      'fail: this could not be looked at: no such file',
      'fail: this could not be looked at: no way',
      'ok: fine',
    ]);
  });

  test('one that hangs has failed after its deadline, and leaves no timer otherwise', async () => {
    const clock = new ManualClock();
    const run = all([{ name: 'hangs', run: () => new Promise(() => {}) }], clock);
    await settle();
    clock.advance(CHECK_DEADLINE_MS);
    assert.match(told(await run)[0]!, /^fail: .*no result within 30 s$/);
    await all([{ name: 'good', run: () => [ok('fine')] }], clock);
    assert.equal(clock.pendingTimers, 0);
  });
});

describe('the report', () => {
  const fine: NamedFinding = { check: 'limits', level: 'ok', found: '20000 open files' };
  const odd: NamedFinding = { check: 'API server', level: 'warn', found: 'the clock\nlies', advice: 'set it' };
  const bad: NamedFinding = { check: 'iptables', level: 'fail', found: 'none', advice: 'install it' };

  test('has one line for each finding, whatever a server says', () => {
    assert.equal(findingLine(fine), 'ok    limits         20000 open files');
    assert.equal(findingLine(odd), 'warn  API server     the clock\\u000alies → set it');
  });

  test('sums up, and fails only for a failure', () => {
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
});

test('what a run would log becomes findings, with the fields', () => {
  const log = new FindingsLog('mend the file');
  log.info();
  log.error('A manifest file cannot be used', { file: 'web.yaml', line: 3, document: undefined });
  log.warn('Plain');
  assert.deepEqual(log.findings, [
    { level: 'fail', found: 'A manifest file cannot be used (file: web.yaml:3)', advice: 'mend the file' },
    { level: 'warn', found: 'Plain', advice: 'mend the file' },
  ]);
});
