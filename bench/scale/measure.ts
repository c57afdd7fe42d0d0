import { setTimeout as sleep } from 'node:timers/promises';
import { POD_ADDRESSES } from '../../test/netns/topology.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { percentile } from '../statistics.ts';
import type { Churn } from './churn.ts';
import { allHaveRules } from './consistency.ts';
import type { Means, ScaleNode } from './scale-node.ts';
import type { ServiceStore } from './service-store.ts';
import { isUdp, type ScaleService } from './services.ts';

/** What is measured of one proxy with so many Services. Milliseconds and MiB; `undefined` where nothing tells. */
export interface ScaleResult {
  readonly services: number;
  readonly means: Means;
  readonly syncFromListsMs: number | undefined;
  readonly syncFromStartMs: number;
  /** Of processor time: a busy machine changes it less. */
  readonly syncProxyCpuMs: number;
  readonly syncIptablesCpuMs: number;
  readonly syncDelayP99Ms: number;
  readonly syncDelayMaxMs: number;
  readonly createdP50Ms: number;
  readonly createdP99Ms: number;
  readonly movedP50Ms: number;
  readonly movedP99Ms: number;
  readonly deletedP50Ms: number;
  readonly deletedP99Ms: number;
  readonly churnDelayP99Ms: number;
  readonly churnDelayMaxMs: number;
  readonly proxyCpuMsPerChange: number;
  readonly iptablesCpuMsPerChange: number;
  readonly connectFirstP50Ms: number;
  readonly connectLastP50Ms: number;
  readonly connectDirectP50Ms: number;
  readonly repairMs: number;
  readonly rssMiB: number;
  readonly peakMiB: number;
  readonly helperMiB: number;
  /** Of both: pages that they share count once. */
  readonly togetherMiB: number;
}

export interface Subject {
  readonly node: ScaleNode;
  readonly store: ServiceStore;
  readonly churn: Churn;
  readonly means: Means;
  /** How many there are, more or less: changes create and delete as many. */
  readonly services: number;
}

export interface Effort {
  /** Services that are created, changed and deleted one after the other. */
  readonly samples: number;
  /** Of background without anything else, to see what a change costs. */
  readonly churnSeconds: number;
  /** Changes in the background: then, and while Services are created and changed one after the other. */
  readonly churnPerSecond: number;
  readonly besidesPerSecond: number;
  readonly connections: number;
}

const PROBE_EVERY_MS = 5;
/** A full sync of what never scaled would take minutes. */
const SYNC_TIMEOUT_MS = 300_000;
const CHANGE_TIMEOUT_MS = 60_000;

/** Starts a proxy and measures it; stops it again. */
export async function measure(subject: Subject, effort: Effort): Promise<ScaleResult> {
  const { node, means, services } = subject;
  try {
    const sync = await firstSync(subject);
    const idle = node.memory;
    const cost = await costOfChanges(subject, effort);
    const changes = await latencies(subject, effort);
    const connect = await connectTimes(subject, effort);
    const repairMs = await repair(subject);
    return { services, means, ...sync, ...cost, ...changes, ...connect, repairMs, ...mebibytes(idle) };
  } finally {
    await node.stopProxy(means);
  }
}

function mebibytes({ proxy, peak, helper, together }: ScaleNode['memory']) {
  return { rssMiB: proxy, peakMiB: peak, helperMiB: helper, togetherMiB: together };
}

/** Until a client reaches the Service that is written last: all rules come with one transaction. */
async function firstSync(subject: Subject) {
  const { node, store, churn, means } = subject;
  const begun = wallMs();
  node.startProxy(means, store.flags);
  const target = { host: plainTcp(churn).at(-1)!.clusterIP, port: 80 };
  const { wallMs: served } = await node.client.call('untilServed', {
    ...target,
    everyMs: 20,
    timeoutMs: SYNC_TIMEOUT_MS,
  });
  const { proxy, iptables } = node.cpuSeconds;
  const delay = await node.loopDelayMs();
  const listed = node.proxy.lines({ msg: 'The first lists from the API server are complete' })[0]?.['ts'];
  await allHaveRules(subject);
  return {
    syncFromListsMs: typeof listed === 'string' ? served - Date.parse(listed) : undefined,
    syncFromStartMs: served - begun,
    syncProxyCpuMs: 1_000 * proxy,
    syncIptablesCpuMs: 1_000 * iptables,
    syncDelayP99Ms: delay.p99,
    syncDelayMaxMs: delay.max,
  };
}

async function costOfChanges({ node, churn }: Subject, { churnSeconds, churnPerSecond }: Effort) {
  const before = node.cpuSeconds;
  await node.loopDelayMs();
  const background = churn.background(churnPerSecond);
  await sleep(churnSeconds * 1_000);
  const changes = await background.stop();
  const delay = await node.loopDelayMs();
  const after = node.cpuSeconds;
  return {
    proxyCpuMsPerChange: (1_000 * (after.proxy - before.proxy)) / changes,
    iptablesCpuMsPerChange: (1_000 * (after.iptables - before.iptables)) / changes,
    churnDelayP99Ms: delay.p99,
    churnDelayMaxMs: delay.max,
  };
}

/** Of new Services, new endpoints and deletions, while others may change in the background. */
async function latencies(subject: Subject, { samples, besidesPerSecond }: Effort) {
  const { node, store, churn, means } = subject;
  const background = churn.background(besidesPerSecond);
  const served = async (service: ScaleService, name: string, write: () => Promise<void>) => {
    const target = { host: service.clusterIP, port: 80, name };
    const answered = node.client.call('untilServed', {
      ...target,
      everyMs: PROBE_EVERY_MS,
      timeoutMs: CHANGE_TIMEOUT_MS,
    });
    const begun = wallMs();
    await write();
    return Math.max(0, (await answered).wallMs - begun);
  };
  const created: number[] = [];
  const moved: number[] = [];
  const deleted: number[] = [];
  const services: ScaleService[] = [];
  for (let sample = 0; sample < samples; sample++) {
    const service = churn.reserve([POD_ADDRESSES[0]]);
    services.push(service);
    created.push(await served(service, 'pod-1', () => store.create(service)));
    const changed = { ...service, endpoints: [POD_ADDRESSES[1]] };
    moved.push(await served(service, 'pod-2', () => store.setEndpoints(changed)));
  }
  const ports = await node.redirected(means);
  for (const service of services) {
    const port = ports.get(service.clusterIP);
    if (port === undefined) throw new Error(`${service.name} is served and has no rule`);
    const begun = wallMs();
    await store.delete(service);
    // A port is closed after its rules have gone.
    const isClosed = async () => !(await node.isListening(port));
    await waitFor(`${service.name} is closed`, isClosed, CHANGE_TIMEOUT_MS);
    deleted.push(wallMs() - begun);
  }
  await background.stop();
  await allHaveRules(subject);
  return {
    createdP50Ms: percentile(created, 50),
    createdP99Ms: percentile(created, 99),
    movedP50Ms: percentile(moved, 50),
    movedP99Ms: percentile(moved, 99),
    deletedP50Ms: percentile(deleted, 50),
    deletedP99Ms: percentile(deleted, 99),
  };
}

/** Through the first and the last of the rules in the kernel, and without any. */
async function connectTimes(subject: Subject, { connections }: Effort) {
  const { node, churn } = subject;
  const tcp = new Set(plainTcp(churn).map(({ clusterIP }) => clusterIP));
  const inOrder = [...(await allHaveRules(subject)).keys()].filter((address) => tcp.has(address));
  const targets = [
    { host: inOrder[0]!, port: 80 },
    { host: inOrder.at(-1)!, port: 80 },
    { host: POD_ADDRESSES[0], port: 8080 },
  ];
  const times = await node.client.call('connectTimes', { targets, count: connections });
  const [first, last, direct] = times.map((list) => percentile(list, 50));
  return { connectFirstP50Ms: first!, connectLastP50Ms: last!, connectDirectP50Ms: direct! };
}

/** From a foreign flush of the table until a client is served again. */
async function repair({ node, churn, means }: Subject): Promise<number> {
  const [service] = plainTcp(churn);
  await node.flush(means);
  const begun = wallMs();
  const { wallMs: served } = await node.client.call('untilServed', {
    host: service!.clusterIP,
    port: 80,
    everyMs: 20,
    timeoutMs: CHANGE_TIMEOUT_MS,
  });
  return served - begun;
}

function plainTcp({ services }: Churn): readonly ScaleService[] {
  return services.filter((service) => !isUdp(service));
}

function wallMs(): number {
  return performance.timeOrigin + performance.now();
}
