import assert from 'node:assert/strict';
import { type Element, SET_NAMES } from '../../src/capture/nft/element.ts';
import type { IpFamily } from '../../src/model/address.ts';
import type { Capture, Portal } from '../../src/model/capture.ts';
import type { ServicePort } from '../../src/model/service-port.ts';
import type { SourceEvent } from '../../src/model/source.ts';
import { ServiceTracker } from '../../src/services/service-tracker.ts';
import { IPV6_NODE, nodeFacts } from '../capture/fixtures.ts';
import { FakeIptables } from '../fakes/fake-iptables.ts';
import { FakeNftKernel } from '../fakes/fake-nft-kernel.ts';
import { ManualClock } from '../fakes/manual-clock.ts';
import { RecordingLog } from '../fakes/recording-log.ts';
import { iptablesCapture, nftCapture } from '../support/capture.ts';
import { address, cidr } from '../support/model.ts';
import { checkElements, checkNftText } from './nft-grammar.ts';
import { checkTransaction } from './rule-grammar.ts';

const NODES = {
  IPv4: nodeFacts({ clusterCidrs: ['10.244.0.0/16'] }),
  IPv6: { ...IPV6_NODE, pods: [{ source: cidr('fd00:244::/64') }] },
} as const;

const isNotRetired = ({ set }: Element) => set !== 'retired';

/** The rules of one family, from the events on. */
class Family {
  readonly iptables = new FakeIptables();
  readonly log = new RecordingLog();
  readonly tracker: ServiceTracker;
  readonly family: IpFamily;
  readonly nft = new FakeNftKernel();
  readonly #capture: Capture;
  /** The same by nft. */
  readonly #nftCapture: Capture;
  #nextPort = 40_000;

  constructor(family: IpFamily) {
    this.family = family;
    this.tracker = new ServiceTracker(family, { servedFamilies: () => ['IPv4', 'IPv6'], isMarking: true });
    this.tracker.setTopology({ nodeName: 'node-1', zone: 'zone-a' });
    this.tracker.setNodeAddresses([NODES[family].hostAddress, address('192.168.50.11')]);
    const clock = new ManualClock();
    const shared = { clock, log: this.log, family, node: () => NODES[family], connectionMark: 0x2000 };
    this.#capture = iptablesCapture({ ...shared, iptables: this.iptables });
    this.#nftCapture = nftCapture({ ...shared, kernel: this.nft });
  }

  async sync({ verify }: { readonly verify: boolean }): Promise<void> {
    const { upserted, removed } = this.tracker.takeDelta();
    if (upserted.length + removed.length === 0 && !verify) return;
    const before = this.iptables.restored.length;
    const delta = { upserted: upserted.map((port) => this.#portal(port)), removed };
    for (const capture of [this.#capture, this.#nftCapture]) {
      capture.apply(delta);
      await capture.sync({ verify });
    }
    for (const text of this.nft.texts.splice(0)) checkNftText(text, this.family);
    for (const change of this.nft.changes.splice(0)) checkElements(change, this.family);
    assert.deepEqual(
      this.#nftCapture.problems().filter(({ key }) => key.startsWith('name ')),
      [],
      'no name is left out',
    );
    for (const text of this.iptables.restored.slice(before)) checkTransaction(text, this.family);
    const left = this.#capture.problems().find(({ message }) => /A rule is left out|refuses a rule/.test(message));
    assert.equal(left, undefined, 'no rule is refused at the last line of defence');
  }

  /** Reading the kernel's rules shows no difference from those that were written step by step. */
  async verify(): Promise<void> {
    await this.sync({ verify: true });
    const before = this.iptables.restored.length;
    await this.sync({ verify: true });
    assert.deepEqual(this.iptables.restored.slice(before), [], 'the rules are as wanted');
    await this.#nftCapture.sync({ verify: true });
    const left = this.nft.changes.filter(({ added, deleted }) => [...added, ...deleted].some(isNotRetired));
    assert.deepEqual([...left, ...this.nft.texts], [], 'the nft table is as wanted');
  }

  #portal(servicePort: ServicePort): Portal {
    this.#nextPort = 40_000 + ((this.#nextPort - 39_998) % 20_000);
    const localPort = this.#nextPort;
    return { servicePort, localPort, ...(servicePort.local && { localSetPort: localPort + 1 }) };
  }
}

/** What becomes of objects in the state, the rules of both families, and the texts that install them. */
export class RulesWorld {
  readonly #families = [new Family('IPv4'), new Family('IPv6')] as const;
  readonly #keys = new Map<string, SourceEvent>();

  async apply(events: readonly SourceEvent[]): Promise<void> {
    for (const event of events) this.#keys.set(`${event.kind} ${event.key}`, event);
    for (const family of this.#families) {
      family.tracker.apply(events);
      await family.sync({ verify: false });
    }
  }

  /** Compares with the kernel's rules, removes all objects, and compares again. */
  async end(): Promise<void> {
    for (const family of this.#families) await family.verify();
    await this.apply([...this.#keys.values()].map(({ kind, key }) => ({ kind, key, value: undefined })));
    for (const family of this.#families) {
      await family.verify();
      const nat = await family.iptables.save('IPv4', 'nat');
      for (const set of SET_NAMES) {
        if (set !== 'retired')
          assert.deepEqual(await family.nft.elements(family.family, set), [], `elements of ${set}`);
      }
      assert.doesNotMatch(nat, /^-A (?!KUBE-USERSPACE-RETIRED ).*"[^" ]+\/[^"]*"/m, 'no rule of a Service is left');
    }
  }
}
