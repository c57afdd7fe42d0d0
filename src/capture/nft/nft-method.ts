import type { Address, IpFamily } from '../../model/address.ts';
import type { InstalledPort } from '../../model/capture.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { claimName } from '../claims.ts';
import type { CaptureMethod, Installed } from '../method.ts';
import { servedSetOf } from './claim-elements.ts';
import type { Element } from './element.ts';
import type { Firewall } from './firewall.ts';
import { followIn } from './follow.ts';
import { installedPortOf, NftBackEnd } from './nft-back-end.ts';
import type { NftKernel } from './nft-kernel.ts';
import { nftFamily, TABLE, tableText } from './table.ts';

export interface NftOptions {
  readonly kernel: NftKernel;
  /** With the mark of what our table lets in. */
  readonly firewall: Firewall;
  readonly clock: Clock;
  readonly log: Log;
  readonly isLocal: (address: Address) => boolean;
}

/** kube-proxy's table in its mode nftables. */
const KUBE_PROXY_TABLE = 'kube-proxy';

const WILDCARD: Readonly<Record<IpFamily, Address>> = { IPv4: '0.0.0.0' as Address, IPv6: '::' as Address };
const LOOPBACK: Readonly<Record<IpFamily, Address>> = { IPv4: '127.0.0.1' as Address, IPv6: '::1' as Address };

/** Captures by maps in nftables tables of our own. */
export function createNft({ kernel, firewall, clock, log, isLocal }: NftOptions): CaptureMethod {
  const open = new Map<IpFamily, NftBackEnd>();
  const elements = async (family: IpFamily, ...sets: readonly Element['set'][]): Promise<readonly Element[]> => {
    const lists = await Promise.all(sets.map((set) => kernel.elements(family, set)));
    return lists.flatMap((list) => list ?? []);
  };
  const portsOf = async (family: IpFamily): Promise<readonly InstalledPort[]> => {
    const live = await elements(family, 'local-ports');
    const retired = await elements(family, 'retired');
    const served = new Set(live.map(({ protocol, port }) => `${protocol} ${port}`));
    const gone = retired.filter(({ protocol, port }) => !served.has(`${protocol} ${port}`));
    const oldestFirst = gone.toSorted((one, other) => (one.leftMs ?? 0) - (other.leftMs ?? 0));
    return [...oldestFirst, ...live].flatMap((element) => installedPortOf(element) ?? []);
  };
  return {
    name: 'nft',
    description: 'nft',
    tables: [TABLE],

    async probe(family) {
      const node = {
        family,
        bindAddress: WILDCARD[family],
        hostAddress: LOOPBACK[family],
        nodePortCidrs: [],
        pods: [],
      };
      await kernel.run(tableText({ node, connectionMark: undefined, unassigned: [] }, []), { isTrial: true });
    },

    async installed(family): Promise<Installed> {
      const holders = new Map<string, ServicePortName>();
      for (const { address, port, protocol, comment } of await elements(family, 'portals', 'nodeports')) {
        const name = servedSetOf(comment)?.name;
        const destination = address === undefined ? { port } : { address, port };
        if (name !== undefined) holders.set(claimName(destination, protocol), name);
      }
      return { ports: await portsOf(family), holders };
    },

    open: (options) => {
      const { family, connectionMark, metrics, ports } = options;
      const backEnd = new NftBackEnd({ family, connectionMark, metrics, ports, kernel, firewall, clock, log });
      open.set(family, backEnd);
      return backEnd;
    },

    follow: (family, packet) => {
      const backEnd = open.get(family);
      const conditionOf = (chain: string) => backEnd?.conditionOf(chain);
      return followIn({ family, kernel, isLocal, facts: backEnd?.facts, conditionOf }, packet);
    },

    async remove(family, { kubeProxys }) {
      const ports = await portsOf(family);
      const wereThere = await kernel.deleteTable(family, TABLE);
      // It starts programs, so not at each start that captures in another way.
      if (wereThere || kubeProxys) await firewall.remove(family);
      if (kubeProxys && (await kernel.deleteTable(family, KUBE_PROXY_TABLE))) {
        log.info("Removed kube-proxy's nft table", { table: `${nftFamily(family)} ${KUBE_PROXY_TABLE}` });
      }
      return wereThere ? ports : undefined;
    },
  };
}
