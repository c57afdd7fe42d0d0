import { VERSION } from '../config/version.ts';
import type { DataPlane } from '../model/data-plane.ts';
import type { Drains } from '../sync/drains.ts';
import type { Channel } from '../upgrade/channel.ts';
import { CHANNEL_VARIABLE } from '../upgrade/protocol.ts';
import { takeOver } from '../upgrade/take-over.ts';
import type { UpgradeOptions } from '../upgrade/upgrade.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import type { ControlPlane } from './control-plane.ts';
import type { Source } from './open-source.ts';

/** `undefined` when the engine cannot pass on what it has. */
export async function upgradeMeans({ handOver }: DataPlane): Promise<UpgradeOptions['means']> {
  if (handOver === undefined) return undefined;
  // Only now, as it needs koffi, without which the portable engine works too; and not later, as another program may be
  // where this one was started from when an upgrade is asked for.
  const { startSuccessor } = await import('../upgrade/successor-process.ts');
  return { dataPlane: handOver, startSuccessor: () => startSuccessor(VERSION, clock) };
}

/** `undefined` unless this process was started to take the place of another. Rejects with a sentence for the user. */
export async function openChannelToPredecessor(): Promise<Channel | undefined> {
  if (process.env[CHANNEL_VARIABLE] === undefined) return undefined;
  const { channelToPredecessor } = await import('../upgrade/successor-process.ts');
  return await channelToPredecessor(process.env, clock);
}

export interface SuccessionParts {
  readonly drains: Drains;
  readonly source: Source;
  readonly controlPlane: ControlPlane;
  readonly dataPlane: DataPlane;
}

/**
 * Resolves when this process has gone on with all that its predecessor had; `awaitSupervision` is due once
 * everything else is at work. When it rejects, with a sentence, the predecessor serves; end this process, and close nothing in order.
 */
export async function succeed(channel: Channel, parts: SuccessionParts): Promise<void> {
  const { controlPlane, dataPlane } = parts;
  try {
    await receiveAll(channel, parts);
  } catch (error) {
    throw new Error(`cannot take over from a predecessor: ${messageOf(error)}`);
  }
  dataPlane.handOver?.thaw();
  controlPlane.start();
  controlPlane.synced();
  await dataPlane.handOver?.atWork();
}

/** Resolves when all of it is this process's, and untouched. */
async function receiveAll(
  channel: Channel,
  { source, controlPlane, dataPlane, drains }: SuccessionParts,
): Promise<void> {
  // Rules and listeners are the predecessor's until it gives them up, so the control plane does not hear of it before.
  const synced = new Promise<void>((resolve, reject) => {
    source.start({ apply: (events) => controlPlane.apply(events), synced: resolve }).catch(reject);
  });
  await channel.during(synced);
  await takeOver(channel, {
    dataPlane: dataPlane.handOver,
    program: VERSION,
    onAdopted: (ports, drained) => {
      controlPlane.adopt(ports);
      drains.replace(drained);
    },
  });
}
