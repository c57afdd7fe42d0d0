import { setTimeout as sleep } from 'node:timers/promises';
import { POD_ADDRESSES } from '../../test/netns/topology.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { allHaveRules } from './consistency.ts';
import type { Subject } from './measure.ts';
import { isUdp, type ScaleService } from './services.ts';

export interface SoakResult {
  readonly changes: number;
  readonly seconds: number;
  readonly rssBeforeMiB: number;
  readonly rssAfterMiB: number;
}

const SETTLE_MS = 5_000;
const ASKED = 50;

/**
 * Many random changes as fast as they can be written. Throws when the proxy does not serve afterwards what is written.
 */
export async function soak(subject: Subject, changes: number): Promise<SoakResult> {
  const { node, store, churn, flavour } = subject;
  node.startProxy([...store.flags, '--iptables-mode', flavour]);
  try {
    await allHaveRules(subject);
    // What a proxy needs for its first changes it needs once.
    await churn.rush(Math.min(1_000, changes));
    await sleep(SETTLE_MS);
    const before = node.memory.proxy;
    const begun = performance.now();
    await churn.rush(changes);
    const seconds = (performance.now() - begun) / 1_000;
    await allHaveRules(subject);
    await sleep(SETTLE_MS);
    for (let asked = 0; asked < Math.min(ASKED, churn.services.length); asked++) {
      await isServed(subject, churn.services[Math.floor((asked / ASKED) * churn.services.length)]!);
    }
    return { changes, seconds, rssBeforeMiB: before, rssAfterMiB: node.memory.proxy };
  } finally {
    await node.stopProxy(flavour);
  }
}

/** Until it is: what was written last may still be on its way. */
async function isServed({ node }: Subject, service: ScaleService): Promise<void> {
  const wanted = service.endpoints.map((address) => `pod-${POD_ADDRESSES.indexOf(address as never) + 1}`);
  const target = { host: service.clusterIP, port: service.ports[0].port };
  let seen: readonly string[] = [];
  const isRight = async () => {
    const names = isUdp(service)
      ? await node.client.call('udpFlows', { ...target, count: 8 })
      : (await node.client.call('requests', { ...target, count: 8 })).names;
    seen = Object.keys(names).sort();
    return service.affinitySeconds === undefined ? seen.join() === wanted.join() : wanted.includes(seen.join());
  };
  await waitFor(service.name, isRight).catch(() => {
    throw new Error(`${service.name} is served by ${seen.join(', ') || 'nobody'}, not by ${wanted.join(', ')}`);
  });
}
