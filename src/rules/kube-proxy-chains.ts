import type { Table } from '../model/iptables.ts';

/*
 * What kube-proxy's modes iptables and ipvs leave behind (kubernetes `pkg/proxy/iptables` and `pkg/proxy/ipvs`,
 * CleanupLeftovers). Not KUBE-MARK-MASQ and what is kubelet's: KUBE-MARK-DROP, KUBE-FIREWALL, KUBE-KUBELET-CANARY. kubelets
 * before 1.28 make the former, too, and need it.
 */
const CANARY = 'KUBE-PROXY-CANARY';
const CHAINS: Readonly<Record<Table, ReadonlySet<string>>> = {
  nat: new Set([
    'KUBE-SERVICES',
    'KUBE-NODEPORTS',
    'KUBE-POSTROUTING',
    'KUBE-NODE-PORT',
    'KUBE-LOAD-BALANCER',
    'KUBE-FIRE-WALL',
    CANARY,
  ]),
  filter: new Set([
    'KUBE-SERVICES',
    'KUBE-EXTERNAL-SERVICES',
    'KUBE-NODEPORTS',
    'KUBE-FORWARD',
    'KUBE-PROXY-FIREWALL',
    'KUBE-NODE-PORT',
    'KUBE-SOURCE-RANGES-FIREWALL',
    'KUBE-IPVS-FILTER',
    'KUBE-IPVS-OUT-FILTER',
    CANARY,
  ]),
  mangle: new Set([CANARY]),
};

/** One for each Service port or endpoint, with a hash of it in base 32. */
const OF_SERVICES = /^KUBE-(?:SVC|SVL|SEP|FW|EXT|XLB)-[A-Z2-7]{16}$/;

export function isKubeProxys(table: Table, chain: string): boolean {
  return CHAINS[table].has(chain) || (table === 'nat' && OF_SERVICES.test(chain));
}
