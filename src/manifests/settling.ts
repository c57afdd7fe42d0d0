/** What `stat` says of a path at one moment. */
export interface Look {
  /** Equal for two looks at the same file with the same content. */
  readonly id: string;
  /** Bytes. */
  readonly size: number;
}

/** A look at a path where there is no file. */
export const ABSENT: Look = { id: 'absent', size: 0 };

/** Long enough that a later write falls into another tick of the file system's clock, and so shows in the next look. */
const QUIET_MS = 50;

/**
 * Taking away waits longer than giving. A file that has become smaller or has gone is more often than not being
 * written: truncated and not yet filled, or removed and not yet created again.
 */
const SMALLER_QUIET_MS = 200;
const EMPTY_QUIET_MS = 400;

interface Watched {
  /** What the last accepted content looked like. */
  readonly accepted: Look | undefined;
  /** A look that differs from it, and since when (ms) it has been the same. */
  readonly pending?: { readonly look: Look; readonly since: number; readonly restlessSince: number };
}

/**
 * Says when a file that has changed may be read: once it has looked the same for a while. The time is observed rather
 * than taken from the file, whose clock may be another machine's or set to anything.
 */
export class Settling {
  readonly #files = new Map<string, Watched>();

  /** Milliseconds until the file may be read, 0 for now; `undefined` when it is as it was accepted. */
  wait(path: string, look: Look, now: number): number | undefined {
    const { accepted, pending } = this.#files.get(path) ?? { accepted: undefined };
    if (look.id === accepted?.id) {
      this.#files.set(path, { accepted });
      return undefined;
    }
    const since = look.id === pending?.look.id ? pending.since : now;
    this.#files.set(path, { accepted, pending: { look, since, restlessSince: pending?.restlessSince ?? now } });
    return Math.max(0, since + quietMs(look, accepted) - now);
  }

  /** How long the file has been different from what was accepted without ever coming to rest. */
  restlessMs(path: string, now: number): number {
    return now - (this.#files.get(path)?.pending?.restlessSince ?? now);
  }

  /** The content that looks like this has been taken; a file that has gone is forgotten. */
  accept(path: string, look: Look): void {
    if (look.id === ABSENT.id) this.#files.delete(path);
    else this.#files.set(path, { accepted: look });
  }
}

function quietMs(look: Look, accepted: Look | undefined): number {
  if (accepted === undefined || look.size >= accepted.size) return QUIET_MS;
  return look.size === 0 && look.id !== ABSENT.id ? EMPTY_QUIET_MS : SMALLER_QUIET_MS;
}
