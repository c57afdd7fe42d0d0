import { isDeepStrictEqual } from 'node:util';
import { allLocalAddresses } from '../kernel/addresses.ts';
import type { FindObstacle, FindRoutedApart } from '../kernel/client-addresses.ts';
import { type Address, type Cidr, type IpFamily, needsLink } from '../model/address.ts';
import type { ClientAddress, ClientFacts } from '../model/client-address.ts';
import type { DataPlane } from '../model/data-plane.ts';
import type { Log } from '../util/log.ts';

export interface WatchedClients {
  readonly dataPlane: Pick<DataPlane, 'knowClients'>;
  readonly findObstacle: FindObstacle;
  readonly findRoutedApart: FindRoutedApart;
  /** That the node wants to serve, and that it serves now. */
  readonly families: { readonly wanted: readonly IpFamily[]; readonly served: () => readonly IpFamily[] };
  readonly node: { readonly podCidrs: readonly Cidr[] | undefined };
  /** The node's default. */
  readonly clientAddress: ClientAddress;
  readonly log: Log;
  readonly localAddresses?: () => readonly Address[];
}

/** Tells the data plane what distinguishes clients, and the operator when endpoints cannot see their addresses. */
export class ClientWatch {
  readonly #options: WatchedClients;
  #facts: ClientFacts | undefined;
  /** Families of which a warning says so, until it is over. */
  readonly #hidden = new Set<IpFamily>();
  #isWarnedOfRouting = false;

  constructor(options: WatchedClients) {
    this.#options = options;
  }

  /** What the data plane knows. */
  get facts(): ClientFacts | undefined {
    return this.#facts;
  }

  /** The machine, or its Node object, may have changed. */
  look(): void {
    const {
      dataPlane,
      families,
      findObstacle,
      findRoutedApart,
      node,
      clientAddress,
      localAddresses = allLocalAddresses,
    } = this.#options;
    const obstacles = new Map(families.wanted.map((family) => [family, findObstacle(family)]));
    // Where the node is what is asked for, few Services are concerned.
    if (clientAddress === 'preserve') {
      for (const family of families.served()) this.#report(family, obstacles.get(family));
    }
    const { podCidrs } = node;
    const routedApart = families.wanted.flatMap(findRoutedApart);
    if (clientAddress === 'preserve' && routedApart.length > 0) this.#warnOfRouting(routedApart);
    const facts: ClientFacts = {
      ...(podCidrs !== undefined && { podCidrs }),
      ...(routedApart.length > 0 && { routedApart }),
      // Each start and end of a pod would be news for every worker.
      nodeAddresses: localAddresses().filter((address) => !needsLink(address)),
      families: families.wanted.filter((family) => obstacles.get(family) === undefined),
    };
    if (isDeepStrictEqual(facts, this.#facts)) return;
    this.#facts = facts;
    dataPlane.knowClients(facts);
  }

  /** Once: such clients come and go, and `explain` names each. */
  #warnOfRouting(routedApart: readonly Cidr[]): void {
    if (this.#isWarnedOfRouting) return;
    this.#isWarnedOfRouting = true;
    const { network, prefixLength } = routedApart[0] as Cidr;
    this.#options.log.warn(
      "Endpoints see this node's address instead of the client's, for clients that policy routing (ip rule) sends another way",
      { client: `${network}/${prefixLength}`, clients: routedApart.length },
    );
  }

  #report(family: IpFamily, obstacle: string | undefined): void {
    const { log } = this.#options;
    if (this.#hidden.has(family) === (obstacle !== undefined)) return;
    if (obstacle === undefined) {
      this.#hidden.delete(family);
      log.info(`Endpoints see the addresses of ${family} clients again`);
    } else {
      this.#hidden.add(family);
      log.warn(`Endpoints see this node's address instead of the client's, for ${family} clients: ${obstacle}`);
    }
  }
}
