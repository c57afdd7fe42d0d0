import type { Address, IpFamily } from '../../model/address.ts';
import { CaptureError, type FollowedPacket, type InstalledPort, type Path } from '../../model/capture.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { messageOf } from '../../util/text.ts';
import type { BackEnd, BackEndOptions, CaptureMethod, Installed } from '../method.ts';
import { IptablesBackEnd } from './back-end.ts';
import { follow } from './follow.ts';
import { installedHolders, installedPorts } from './installed.ts';
import { type Iptables, IptablesError, type Table } from './iptables.ts';
import { natProbeText, planCleanup } from './plan.ts';
import { readTable } from './table-sync.ts';

interface IptablesMethodOptions {
  readonly iptables: Iptables;
  /** Of this machine. */
  readonly isLocal: (address: Address) => boolean;
  readonly clock: Clock;
  readonly log: Log;
}

/** In the order in which they are cleaned: without those of nat, nothing comes to the others. */
const TABLES: readonly Table[] = ['nat', 'filter', 'mangle'];

/** Capturing by rules of iptables, in one of its flavours. */
export class IptablesMethod implements CaptureMethod {
  readonly name = 'iptables';
  readonly tables = ['nat', 'filter'];
  readonly #options: IptablesMethodOptions;

  constructor(options: IptablesMethodOptions) {
    this.#options = options;
  }

  get flavour() {
    return this.#options.iptables.flavour;
  }

  get description(): string {
    return `iptables ${this.flavour}`;
  }

  async probe(family: IpFamily): Promise<void> {
    await this.#options.iptables.restore(family, natProbeText(family));
  }

  async installed(family: IpFamily): Promise<Installed> {
    const { iptables, clock } = this.#options;
    const nat = await readTable(clock, 'nat', await iptables.save(family, 'nat'));
    return { ports: installedPorts(nat, clock.wallNow()), holders: installedHolders(nat) };
  }

  open(options: BackEndOptions): BackEnd {
    const { iptables, clock, log } = this.#options;
    return new IptablesBackEnd({ ...options, iptables, clock, log });
  }

  follow(family: IpFamily, packet: FollowedPacket): Promise<Path> {
    const { iptables, isLocal, clock } = this.#options;
    const list = (table: Table, chain: string) => iptables.list(family, table, chain);
    return follow(packet, { list, isLocal, clock });
  }

  async remove(family: IpFamily, how: { readonly kubeProxys: boolean }): Promise<readonly InstalledPort[] | undefined> {
    const { iptables, clock } = this.#options;
    let ports: readonly InstalledPort[] | undefined;
    const failures: string[] = [];
    let mayPass = false;
    for (const table of TABLES) {
      try {
        const chains = await readTable(clock, table, await iptables.save(family, table));
        const text = planCleanup(table, chains, how);
        if (text === undefined) continue;
        await iptables.restore(family, text);
        ports = table === 'nat' ? installedPorts(chains, clock.wallNow()) : (ports ?? []);
      } catch (error) {
        if (error instanceof IptablesError && error.code === 'missing') continue;
        mayPass ||= error instanceof CaptureError && error.mayPass;
        failures.push(`table ${table}: ${messageOf(error)}`);
      }
    }
    if (failures.length > 0) throw new CaptureError(failures.join('; '), { mayPass });
    return ports;
  }
}
