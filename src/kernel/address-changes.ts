import type { Clock } from '../util/clock.ts';

export interface AddressChangesOptions {
  readonly clock: Clock;
  /** Addresses, links or default routes of this machine may have changed. Must not throw. */
  readonly onChange: () => void;
  readonly signal: AbortSignal;
}

/** Node has no way to wait for this socket. Reading it in vain takes a microsecond, so a change is soon noticed. */
const LOOK_MS = 250;

/** Reading all addresses takes fifty microseconds for a few, and a millisecond for hundreds of pods' interfaces. */
const BLIND_LOOK_MS = 1_000;

/** Hears of changes from the kernel where system calls can be made; elsewhere, `onChange` is called every second. */
export async function watchAddresses({ clock, onChange, signal }: AddressChangesOptions): Promise<void> {
  const every = (ms: number, look: () => void): void => {
    if (signal.aborted) return;
    look();
    clock.after(ms, () => every(ms, look));
  };
  try {
    // Not before it is wanted: koffi's addon need not load where only the node engine runs.
    const { RouteEvents } = await import('../sys/netlink.ts');
    const events = new RouteEvents();
    every(LOOK_MS, () => {
      if (events.take()) onChange();
    });
  } catch {
    every(BLIND_LOOK_MS, onChange);
  }
}
