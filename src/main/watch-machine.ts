import { isDeepStrictEqual } from 'node:util';
import type { Config } from '../cli/config.ts';
import { localAddresses } from '../host/host-address.ts';
import type { NodeAddress } from '../host/node-address.ts';
import { systemClock as clock } from '../host/system-clock.ts';
import type { Address, IpFamily } from '../model/address.ts';
import type { HealthCheckNodePorts } from '../telemetry/health-check-node-ports.ts';
import { nodePortAddresses } from './node-port-addresses.ts';
import type { Pipeline } from './pipeline.ts';

/** Polled, for Node cannot subscribe to the kernel's events. A reading takes less than a millisecond. */
const INTERVAL_MS = 5_000;

export interface WatchedMachine {
  readonly config: Config;
  readonly pipelines: readonly Pipeline[];
  readonly hosts: Readonly<Record<IpFamily, NodeAddress>>;
  readonly healthCheckNodePorts: Pick<HealthCheckNodePorts, 'listenOn'>;
}

/** Tells whom it concerns, now and for ever, which addresses this machine has, and that its programs may differ. */
export function watchMachine(machine: WatchedMachine): void {
  const { config, hosts } = machine;
  const families = machine.pipelines.map(({ family }) => family);
  let known: readonly Address[] | undefined;
  const look = (): void => {
    const served = nodePortAddresses(config, { families, hosts });
    for (const { family, tracker, controller } of machine.pipelines) {
      tracker.setNodeAddresses(localAddresses(family));
      tracker.listeningChanged();
      controller.trackerChanged();
    }
    if (!isDeepStrictEqual(served, known)) machine.healthCheckNodePorts.listenOn(served);
    known = served;
    clock.after(INTERVAL_MS, look);
  };
  look();
}
