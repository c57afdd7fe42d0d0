import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseCommandLine } from '../support/command-line.ts';

function lineOf(...argv: string[]) {
  return parseCommandLine(['--manifests', 'x', ...argv]);
}

function warningsOf(...argv: string[]): readonly string[] {
  const line = lineOf(...argv);
  assert.ok(line.kind === 'run', JSON.stringify(line));
  return line.warnings;
}

/** A value of each that is not the default, and one that is wrong where there is one. */
const FLAGS: readonly (readonly [flag: string, value: string, wrong?: string])[] = [
  ['kube-api-content-type', 'application/json'],
  ['config-sync-period', '1h', '0s'],
  ['feature-gates', 'A=true,B=false', 'A=maybe'],
  ['feature-gates', 'A=true', 'A'],
  ['show-hidden-metrics-for-version', '1.19'],
  ['cleanup-ipvs', 'false', 'x'],
  ['iptables-masquerade-bit', '15', '32'],
  ['iptables-localhost-nodeports', 'false', 'x'],
  ['ipvs-exclude-cidrs', '10.0.0.0/8', 'x'],
  ['ipvs-strict-arp', 'true', 'x'],
  ['ipvs-sync-period', '1m', '0s'],
  ['ipvs-min-sync-period', '1s', '-1s'],
  ['ipvs-tcp-timeout', '1s', 'x'],
  ['ipvs-tcpfin-timeout', '1s', 'x'],
  ['ipvs-udp-timeout', '1s', 'x'],
  ['vmodule', 'gc=4,proxier=2', 'gc'],
  ['log-flush-frequency', '1s', 'x'],
  ['log-text-split-stream', 'true', 'x'],
  ['log-text-info-buffer-size', '4Ki', 'much'],
  ['log-json-split-stream', 'true', 'x'],
  ['log-json-info-buffer-size', '1', '-1'],
  ['add-dir-header', 'true', 'x'],
  ['alsologtostderr', 'true', 'x'],
  ['log-backtrace-at', 'a.go:1'],
  ['log-dir', '/tmp'],
  ['log-file', '/tmp/x'],
  ['log-file-max-size', '1', '-1'],
  ['logtostderr', 'false', 'x'],
  ['one-output', 'true', 'x'],
  ['skip-headers', 'true', 'x'],
  ['skip-log-headers', 'true', 'x'],
  ['stderrthreshold', '0'],
  ['boot-id-file', 'x'],
  ['machine-id-file', 'x'],
];

describe('a flag of kube-proxy that has no effect here', () => {
  for (const [flag, value, wrong] of FLAGS) {
    test(`--${flag}=${value} is accepted with one warning that names it`, () => {
      for (const argument of [`--${flag}=${value}`, `--${flag.replaceAll('-', '_')}=${value}`]) {
        const [warning, ...others] = warningsOf(argument);
        assert.ok(warning?.startsWith(`Accepted, but without effect in this proxy: --${flag} (`), warning);
        assert.deepEqual(others, []);
      }
    });

    if (wrong !== undefined) {
      test(`--${flag}=${wrong} is refused`, () => {
        const line = lineOf(`--${flag}=${wrong}`);
        assert.ok(line.kind === 'error', JSON.stringify(line));
        assert.ok(line.text.startsWith(`--${flag} "${wrong}": `), line.text);
      });
    }
  }

  test('all of them share the warning', () => {
    const warnings = warningsOf(...FLAGS.map(([flag, value]) => `--${flag}=${value}`));
    assert.equal(warnings.length, 1);
    for (const [flag] of FLAGS) assert.match(warnings[0] ?? '', new RegExp(`--${flag} \\(`));
  });

  test('at its default it is not worth a warning', () => {
    assert.deepEqual(
      warningsOf('--iptables-masquerade-bit=14', '--ipvs-strict-arp=false', '--logtostderr', '--vmodule='),
      [],
    );
    assert.deepEqual(warningsOf('--feature-gates', '', '--ipvs-sync-period=30000ms'), []);
    assert.deepEqual(warningsOf('--feature-gates', 'AllowServiceExternalIPs=false'), []);
  });
});
