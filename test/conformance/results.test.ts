import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseJunit, resultTable } from './results.ts';

const JUNIT = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite>
  <testcase name="[SynchronizedBeforeSuite]" classname="e2e" status="passed" time="3.1"></testcase>
  <testcase name="[It] [sig-network] Services should serve &#34;a&#34; [Conformance] [sig-network, Conformance]" status="passed" time="12.5">
    <system-err>&lt;noise status="failed"&gt;</system-err>
  </testcase>
  <testcase name="[It] [sig-network] DNS should &amp; would [sig-network]" status="failed" time="300"><failure message="no&#xA;  &quot;answer&quot;" type="failed"/></testcase>
  <testcase name="[It] [sig-network] Ingress [sig-network]" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
</testsuite></testsuites>`;

test('of a JUnit report, what ran', () => {
  assert.deepEqual(parseJunit(JUNIT), [
    { name: '[sig-network] DNS should & would', passed: false, seconds: 300, failure: 'no "answer"' },
    { name: '[sig-network] Services should serve "a" [Conformance]', passed: true, seconds: 12.5, failure: '' },
  ]);
});

test('a table of proxies, failures first', () => {
  const results = parseJunit(JUNIT);
  const table = resultTable(
    new Map([
      ['ours', results],
      ['theirs', results.slice(1)],
    ]),
  );
  assert.equal(
    table,
    `| test | ours | theirs |
| --- | --- | --- |
| all | 1 of 2 passed | 1 of 1 passed |
| [sig-network] DNS should & would | FAILED | not run |
| [sig-network] Services should serve "a" [Conformance] | passed | passed |`,
  );
});
