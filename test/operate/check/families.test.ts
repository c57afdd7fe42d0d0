import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { IptablesError } from '../../../src/model/iptables.ts';
import { checkFamilies, type FamilyFacts } from '../../../src/operate/check/families.ts';
import { address } from '../../rules/fixtures.ts';
import { of, told } from './levels.ts';

const IPV4 = { family: 'IPv4', address: address('10.0.0.1') } as const;
const IPV6 = { family: 'IPv6', address: address('fd00::1') } as const;

const check = (facts: Partial<FamilyFacts> = {}) =>
  checkFamilies({ served: [IPV4, IPV6], leftOut: undefined, readRules: async () => '', ...facts });

const failing = (err: string, code: IptablesError['code'] = 'failed') => ({
  readRules: () => Promise.reject(new IptablesError(code, err)),
});

describe('address families', () => {
  test('are told with the addresses of the node', async () => {
    assert.deepEqual(told(await check()), [
      'ok: Services are served over IPv4 (node address 10.0.0.1) and IPv6 (node address fd00::1)',
    ]);
  });

  test('one that cannot be served beside the primary one is a warning', async () => {
    assert.deepEqual(told(await check({ served: [IPV4], leftOut: 'no ip6tables' })), [
      'warn: Services are served over IPv4 (node address 10.0.0.1) only: no ip6tables',
    ]);
  });

  const FAILURES: readonly (readonly [what: string, err: string, told: RegExp])[] = [
    [
      'nf_tables',
      'iptables-save ended with 1: Failed to initialize nft: Protocol not supported',
      /^there can be no rules for IPv4: iptables-save ended with 1: .* → load nf_tables \(modprobe nf_tables\), or use/,
    ],
    ['a table', "can't initialize iptables table `nat'", /→ .*modprobe iptable_nat iptable_filter/],
    [
      'rights',
      'iptables-save needs root: Could not fetch rule set generation id: Permission denied',
      /→ see the check of/,
    ],
  ];
  for (const [what, err, says] of FAILURES) {
    test(`without ${what} are a failure, with its own cure`, async () => {
      const findings = await check(failing(err));
      assert.equal(findings.length, 1);
      assert.match(of('fail', findings)[0]!, says);
    });
  }

  test('rules that are locked now say nothing against them', async () => {
    assert.deepEqual(of('fail', await check(failing('try again', 'locked'))), []);
    assert.deepEqual(of('fail', await check(failing('too late', 'timeout'))), []);
  });

  test('are asked for rules of the primary one alone', async () => {
    const asked: string[] = [];
    const readRules = async (family: string) => {
      asked.push(family);
    };
    await check({ served: [IPV6, IPV4], readRules });
    assert.deepEqual(asked, ['IPv6']);
  });
});
