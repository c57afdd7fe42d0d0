import type { Cidr, IpFamily } from '../model/address.ts';
import { listed, messageOf } from '../util/text.ts';
import { listIfThere, readIfThere } from './files.ts';

/**
 * Why this machine cannot show endpoints the addresses of clients now (docs/adr/0023), as a clause with what to do
 * about it; `undefined`: nothing is in the way.
 */
export type FindObstacle = (family: IpFamily) => string | undefined;

export async function obstacleFinder(): Promise<FindObstacle> {
  // Loaded here, because the node engine also runs where koffi's addon cannot be loaded.
  const kept = await import('./conntrack/kept.ts').catch(messageOf);
  if (typeof kept === 'string') return () => kept;
  // What the kernel can do once, it can do until it ends.
  const able = new Set<IpFamily>();
  return (family) => {
    const lacking = able.has(family) ? undefined : kept.probeKeptEntries(family);
    if (lacking !== undefined) return lacking;
    able.add(family);
    return shortTimeWait() ?? unseenBridge(family);
  };
}

/** The sources for which this machine has rules of policy routing (`ip rule`). Throws a `SysError`. */
export type FindRoutedApart = (family: IpFamily) => readonly Cidr[];

export async function routedApartFinder(): Promise<FindRoutedApart> {
  // Loaded here for the same reason. Where it does not load, no address is kept.
  const rtnetlink = await import('./rtnetlink.ts').catch(() => undefined);
  return rtnetlink?.routedApart ?? (() => []);
}

/** Where the kernel's files are. */
interface Roots {
  readonly proc: string;
  readonly sys: string;
}

const ROOTS: Roots = { proc: '/proc', sys: '/sys' };

const NAMED = 3;

const TIME_WAIT = 'nf_conntrack_tcp_timeout_time_wait';
const MIN_TIME_WAIT_SECONDS = 30;

/**
 * Connection tracking takes the repeated end of one direction for the end of the other: a connection that waits for the
 * answer counts as over, and is forgotten after the time of TIME_WAIT. The answer then never reaches the proxy.
 */
export function shortTimeWait({ proc }: Pick<Roots, 'proc'> = ROOTS): string | undefined {
  const seconds = Number(readIfThere(`${proc}/sys/net/netfilter/${TIME_WAIT}`) ?? MIN_TIME_WAIT_SECONDS);
  if (seconds >= MIN_TIME_WAIT_SECONDS) return undefined;
  const what = `the kernel may forget a connection ${seconds} s after a client has ended its direction`;
  return `${what}, while it waits for the answer; sysctl net.netfilter.${TIME_WAIT}=120`;
}

/**
 * A bridge with ports whose packets iptables does not see. A client and an endpoint on it answer each other below
 * conntrack, so the answers of an endpoint that saw the client's address would never come back through the proxy.
 */
export function unseenBridge(family: IpFamily, { proc, sys }: Roots = ROOTS): string | undefined {
  const part = family === 'IPv4' ? 'iptables' : 'ip6tables';
  const ofAll = readIfThere(`${proc}/sys/net/bridge/bridge-nf-call-${part}`)?.trim();
  if (ofAll === '1') return undefined;
  // A bridge's own switch does nothing without br_netfilter, which brings the one above.
  const sees = (bridge: string) =>
    ofAll !== undefined && readIfThere(`${sys}/class/net/${bridge}/bridge/nf_call_${part}`)?.trim() === '1';
  const unseen = listIfThere(`${sys}/class/net`).filter(
    (name) => listIfThere(`${sys}/class/net/${name}/brif`).length > 0 && !sees(name),
  );
  if (unseen.length === 0) return undefined;
  const bridges = `bridge${unseen.length === 1 ? '' : 's'} ${listed(unseen, NAMED)}`;
  const cure = ofAll === undefined ? 'modprobe br_netfilter' : `sysctl net.bridge.bridge-nf-call-${part}=1`;
  return `${part} does not see what passes ${bridges}; ${cure}`;
}
