import assert from 'node:assert/strict';
import { beforeEach, describe, test } from 'node:test';
import type { Element } from '../../src/capture/nft/element.ts';
import type { NftKernel } from '../../src/capture/nft/nft-kernel.ts';
import { conditionsText, removalText, TABLE, tableText } from '../../src/capture/nft/table.ts';
import { CaptureError } from '../../src/model/capture.ts';
import { IPV6_NODE, nodeFacts } from '../capture/fixtures.ts';
import { address } from '../support/model.ts';

const NODES = { IPv4: nodeFacts(), IPv6: IPV6_NODE } as const;
const ADDRESSES = { IPv4: address('10.96.0.1'), IPv6: address('fd00:96::1') } as const;

const CONDITION = { chain: 'from-x', rules: [{ source: undefined, inInterface: undefined, to: 'to-local' }] };

/** `create` gives a kernel without tables of ours. The suite runs one test at a time. */
export function nftKernelCompliance(name: string, create: () => NftKernel): void {
  for (const family of ['IPv4', 'IPv6'] as const) {
    describe(`tables of ${family} in ${name}`, () => {
      let kernel: NftKernel;
      const text = tableText({ node: NODES[family], connectionMark: 0x2000, unassigned: [] }, []);
      const portal = (fields: Partial<Element> = {}): Element => {
        return {
          set: 'portals',
          address: ADDRESSES[family],
          protocol: 'TCP',
          port: 80,
          comment: 'a/b',
          data: 40_001,
          ...fields,
        };
      };
      const found = async () => {
        const elements = (await kernel.elements(family, 'portals')) ?? [];
        return elements.map(({ address, protocol, port, data, comment }) => [address, protocol, port, data, comment]);
      };
      const refused = (change: Promise<void>) =>
        change.then(
          () => assert.fail('it was accepted'),
          (error) => assert.ok(error instanceof CaptureError && !error.mayPass, `${error}`),
        );

      beforeEach(async () => {
        kernel = create();
        await kernel.deleteTable(family, TABLE);
      });

      test('there is none before it is written, and a trial writes none', async () => {
        await kernel.run(text, { isTrial: true });
        assert.equal(await kernel.elements(family, 'portals'), undefined);
        assert.equal(await kernel.element(family, portal()), undefined);
        assert.equal((await kernel.rules(family)).size, 0);
        assert.equal(await kernel.deleteTable(family, TABLE), false);
        await refused(kernel.change(family, { deleted: [], added: [portal()] }));
      });

      test('elements are added, found by their key, and deleted', async () => {
        await kernel.run(text);
        assert.deepEqual(await found(), []);
        const other = portal({ protocol: 'UDP', port: 65_535, data: 1, comment: `${'n'.repeat(200)} local` });
        await kernel.change(family, { deleted: [], added: [portal(), other] });
        assert.equal((await found()).length, 2);
        assert.equal((await kernel.element(family, portal({ data: undefined })))?.data, 40_001);
        assert.equal((await kernel.element(family, other))?.comment, other.comment);
        assert.equal(await kernel.element(family, portal({ port: 81 })), undefined);
        await kernel.change(family, { deleted: [other], added: [] });
        assert.deepEqual(await found(), [[ADDRESSES[family], 'TCP', 80, 40_001, 'a/b']]);
      });

      test('an element is replaced in one change', async () => {
        await kernel.run(text);
        await kernel.change(family, { deleted: [], added: [portal()] });
        await kernel.change(family, { deleted: [portal()], added: [portal({ data: 40_002, comment: 'a/c' })] });
        assert.deepEqual(await found(), [[ADDRESSES[family], 'TCP', 80, 40_002, 'a/c']]);
      });

      test('of a change that cannot be made, nothing is', async () => {
        await kernel.run(text);
        await kernel.change(family, { deleted: [], added: [portal()] });
        await refused(kernel.change(family, { deleted: [portal({ port: 81 })], added: [portal({ port: 82 })] }));
        await refused(kernel.change(family, { deleted: [], added: [portal({ port: 82 }), portal({ data: 2 })] }));
        const lost = portal({ set: 'conditions', data: 'nowhere' });
        await refused(kernel.change(family, { deleted: [portal()], added: [lost] }));
        assert.deepEqual(await found(), [[ADDRESSES[family], 'TCP', 80, 40_001, 'a/b']]);
      });

      test('rules that are written anew are others, and elements stay', async () => {
        await kernel.run(text);
        await kernel.change(family, { deleted: [], added: [portal()] });
        const before = await kernel.rules(family);
        assert.ok(before.has('portals-in'));
        await kernel.run(text);
        const after = await kernel.rules(family);
        assert.deepEqual([...after.keys()].sort(), [...before.keys()].sort());
        assert.notEqual(after.get('portals-in'), before.get('portals-in'));
        assert.equal((await found()).length, 1);
        await kernel.run(`${removalText(family)}${text}`);
        assert.deepEqual(await found(), []);
      });

      test('chains of conditions come and go', async () => {
        await kernel.run(text);
        await kernel.run(conditionsText(family, [CONDITION], []));
        assert.ok((await kernel.rules(family)).has('from-x'));
        const conditional = portal({ set: 'conditions', data: 'from-x' });
        await kernel.change(family, { deleted: [], added: [conditional] });
        assert.equal((await kernel.element(family, conditional))?.data, 'from-x');
        await kernel.change(family, { deleted: [conditional], added: [] });
        await kernel.run(conditionsText(family, [], ['from-x']));
        assert.ok(!(await kernel.rules(family)).has('from-x'));
      });

      test('the generation is another one after each change', async () => {
        const seen = [kernel.generation()];
        await kernel.run(text);
        seen.push(kernel.generation());
        await kernel.change(family, { deleted: [], added: [portal()] });
        seen.push(kernel.generation());
        await kernel.deleteTable(family, TABLE);
        seen.push(kernel.generation());
        assert.equal(new Set(seen).size, 4);
        assert.equal(kernel.generation(), seen.at(-1));
      });
    });
  }
}
