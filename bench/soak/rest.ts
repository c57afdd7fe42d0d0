import { readdirSync } from 'node:fs';
import { RETIRED_CHAIN } from '../../src/capture/iptables/chains.ts';
import { type Environment, listeningPorts, metric } from '../../test/netns/harness.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { residentKiB } from '../../test/support/processes.ts';
import { helperOf } from '../scale/scale-node.ts';

/** What the proxy holds while everything rests. */
export interface Rest {
  /** MiB; of the proxy and of its helper. */
  readonly rss: number;
  readonly helper: number;
  readonly descriptors: number;
  readonly chains: number;
  readonly rules: number;
  readonly ports: number;
  /** Rules that remember local ports. It is a log, which the proxy writes anew when it has grown to 8,192. */
  readonly retired: number;
  /** Entries of the node, whoever made them. */
  readonly conntrack: number;
}

/** The same Services need the same of these, to one. */
const EXACT = ['chains', 'rules', 'ports'] as const;

/** Waits until nothing but `held` connections is open, and the rules and local ports are what they were at `first`. */
export async function comeToRest(
  environment: Environment,
  { pid, held, first }: { readonly pid: number; readonly held: number; readonly first: Rest | undefined },
): Promise<Rest> {
  let active = 0;
  await waitFor(`nothing but ${held} connections is open`, async () => {
    // A scrape that is late is made again.
    active = metric(await environment.metricsText().catch(() => ''), 'userspace_proxy_connections_active');
    return active === held;
  }).catch((error: Error) => {
    throw new Error(`${error.message}: ${active} are`);
  });
  let rest = await take(environment, pid);
  const differing = () => EXACT.filter((name) => first !== undefined && rest[name] !== first[name]);
  await waitFor('the same rules, chains and local ports as at first', async () => {
    rest = await take(environment, pid);
    return differing().length === 0;
  }).catch((error: Error) => {
    const found = differing().map((name) => `${rest[name]} ${name} and not ${first![name]}`);
    throw new Error(`${error.message}: there are ${found.join(', ')}`);
  });
  return rest;
}

async function take({ iptables, topology: { node } }: Environment, pid: number): Promise<Rest> {
  const all = [...(await iptables.save('nat')), ...(await iptables.save('filter'))];
  const isRetired = (line: string) => line.startsWith(`-A ${RETIRED_CHAIN} `) || line.startsWith(`:${RETIRED_CHAIN} `);
  const lines = all.filter((line) => !isRetired(line));
  const mib = (of: number) => Math.round(residentKiB(of, 'VmRSS') / 1024);
  return {
    rss: mib(pid),
    helper: mib(helperOf(pid)),
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    chains: lines.filter((line) => line.startsWith(':')).length,
    rules: lines.filter((line) => line.startsWith('-A')).length,
    ports: (await listeningPorts(node)).length,
    retired: all.filter((line) => line.startsWith('-A') && isRetired(line)).length,
    conntrack: Number(await node.output(['cat', '/proc/sys/net/netfilter/nf_conntrack_count'])),
  };
}
