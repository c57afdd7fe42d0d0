import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseOptions } from '../../../bench/scale/options.ts';

describe('options of scripts/bench scale', () => {
  test('defaults', () => {
    const options = parseOptions([]);
    assert.deepEqual(options?.services, [100, 1_000, 5_000, 10_000]);
    assert.deepEqual(options?.flavours, ['nft', 'legacy']);
    assert.deepEqual([options?.source, options?.soak, options?.json], ['api', 100_000, undefined]);
  });

  test('--quick does less of everything, unless a flag says otherwise', () => {
    const full = parseOptions([])!;
    const quick = parseOptions(['--quick'])!;
    assert.ok(quick.samples < full.samples && quick.churnSeconds < full.churnSeconds && quick.soak < full.soak);
    assert.deepEqual(quick.services, [100, 1_000]);
    assert.deepEqual(parseOptions(['--quick', '--services', '7', '--soak', '0'])?.services, [7]);
    assert.equal(parseOptions(['--quick', '--services', '7', '--soak', '0'])?.soak, 0);
  });

  test('Services grow, flavours have an order, whatever was named first', () => {
    const options = parseOptions(['--services', '1000,5,200', '--flavours', 'legacy,nft']);
    assert.deepEqual(options?.services, [5, 200, 1_000]);
    assert.deepEqual(options?.flavours, ['nft', 'legacy']);
  });

  test('--help', () => {
    assert.equal(parseOptions(['--help']), undefined);
  });

  for (const [args, message] of [
    [['--services', '0'], /--services takes whole numbers/],
    [['--services', '100,'], /--services takes whole numbers/],
    [['--services', '50001'], /from 1 to 50000, not "50001"/],
    [['--services', '1e3'], /--services takes whole numbers/],
    [['--soak', '-1'], /soak/],
    [['--flavours', 'ipvs'], /knows no "ipvs"/],
    [['--source', 'etcd'], /takes api or manifests, not "etcd"/],
    [['--sevices', '1'], /sevices/],
  ] as const) {
    test(`${args.join(' ')} is refused`, () => {
      assert.throws(() => parseOptions(args), message);
    });
  }
});
