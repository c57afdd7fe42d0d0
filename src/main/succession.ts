import { VERSION } from '../cli/version.ts';
import type { DataPlane } from '../contracts/data-plane.ts';
import type { Channel } from '../handover/channel.ts';
import { CHANNEL_VARIABLE } from '../handover/protocol.ts';
import { awaitRelease, takeOver } from '../handover/take-over.ts';
import type { UpgradeOptions } from '../handover/upgrade.ts';
import { systemClock as clock } from '../host/system-clock.ts';
import type { ControlPlane } from './control-plane.ts';
import type { Source } from './open-source.ts';

/** `undefined` when the engine cannot pass on what it has. */
export async function upgradeMeans({ handOver }: DataPlane): Promise<UpgradeOptions['means']> {
  if (handOver === undefined) return undefined;
  // Only now, as it needs koffi, without which the portable engine works too; and not later, as another program may be
  // where this one was started from when an upgrade is asked for.
  const { startSuccessor } = await import('../handover/successor-process.ts');
  return { dataPlane: handOver, startSuccessor: () => startSuccessor({ clock }) };
}

/** `undefined` unless this process was started to take the place of another. */
export async function openChannelToPredecessor(): Promise<Channel | undefined> {
  if (process.env[CHANNEL_VARIABLE] === undefined) return undefined;
  const { channelToPredecessor } = await import('../handover/successor-process.ts');
  return channelToPredecessor(process.env, clock);
}

export interface SuccessionParts {
  readonly source: Source;
  readonly controlPlane: ControlPlane;
  readonly dataPlane: DataPlane;
}

/** Resolves when this process serves in place of its predecessor. When it rejects, that one does. */
export async function succeed(channel: Channel, { source, controlPlane, dataPlane }: SuccessionParts): Promise<void> {
  // Rules and listeners are the predecessor's until it gives them up, so the control plane does not hear of it before.
  await new Promise<void>((resolve, reject) => {
    source.start({ apply: (events) => controlPlane.apply(events), synced: resolve }).catch(reject);
  });
  await takeOver(channel, {
    dataPlane: dataPlane.handOver,
    program: VERSION,
    onAdopted: (ports) => controlPlane.adopt(ports),
  });
  await awaitRelease(channel);
  dataPlane.handOver?.thaw();
  channel.close();
  controlPlane.start();
  controlPlane.synced();
}
