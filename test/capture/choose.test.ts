import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Candidate, chooseMethod } from '../../src/capture/choose.ts';
import type { CaptureMethod } from '../../src/capture/method.ts';
import type { IpFamily } from '../../src/model/address.ts';
import { CaptureError, type CaptureMethodName } from '../../src/model/capture.ts';

const MISSING = new CaptureError('its programs are missing', { mayPass: false });
const REFUSED = new CaptureError('the kernel has no such tables', { mayPass: false });
const LOCKED = new CaptureError('another program holds the lock', { mayPass: true });

/** `opening`: why it cannot be opened; `probing`: why it cannot capture, in each family that it is asked for. */
function candidate(name: CaptureMethodName, { opening, probing = {} }: Faults = {}): Candidate {
  const probe = async (family: IpFamily) => {
    const fault = probing[family];
    if (fault !== undefined) throw fault;
  };
  const open = async () => {
    if (opening !== undefined) throw opening;
    return { name, probe } as Partial<CaptureMethod> as CaptureMethod;
  };
  return { name, open };
}

interface Faults {
  readonly opening?: CaptureError;
  readonly probing?: Partial<Record<IpFamily, CaptureError>>;
}

async function choice(mode: 'auto' | CaptureMethodName, iptables: Faults, nft: Faults) {
  const candidates = [candidate('iptables', iptables), candidate('nft', nft)];
  const { method, why } = await chooseMethod(mode, candidates, ['IPv4', 'IPv6']);
  return [method.name, why];
}

const NO_RULES = { probing: { IPv4: REFUSED, IPv6: REFUSED } };

describe('--capture', () => {
  test('auto takes iptables where it works for a family, or may', async () => {
    const chosen = ['iptables', 'it works on this node'];
    assert.deepEqual(await choice('auto', {}, {}), chosen);
    assert.deepEqual(await choice('auto', { probing: { IPv4: REFUSED } }, {}), chosen);
    assert.deepEqual(await choice('auto', { probing: { IPv4: LOCKED, IPv6: REFUSED } }, {}), chosen);
    assert.deepEqual(await choice('auto', {}, NO_RULES), chosen);
  });

  test('auto takes nft where iptables does not work, and says why', async () => {
    assert.deepEqual(await choice('auto', { opening: MISSING }, {}), [
      'nft',
      'it works on this node (iptables: its programs are missing)',
    ]);
    assert.deepEqual(await choice('auto', NO_RULES, {}), [
      'nft',
      'it works on this node (iptables: the kernel has no such tables)',
    ]);
  });

  test('auto takes what has programs where nothing works yet, and says what is wrong with each', async () => {
    assert.deepEqual(await choice('auto', NO_RULES, NO_RULES), [
      'iptables',
      'nothing works on this node yet (iptables: the kernel has no such tables; nft: the kernel has no such tables)',
    ]);
    await assert.rejects(
      choice('auto', { opening: MISSING }, { opening: MISSING }),
      /^CaptureError: iptables: its programs are missing; nft: its programs are missing$/,
    );
  });

  test('a name is obeyed, works it or not', async () => {
    assert.deepEqual(await choice('nft', {}, NO_RULES), ['nft', '--capture says so']);
    assert.deepEqual(await choice('iptables', NO_RULES, { opening: MISSING }), ['iptables', '--capture says so']);
    await assert.rejects(choice('nft', {}, { opening: MISSING }), MISSING);
  });
});
