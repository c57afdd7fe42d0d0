import { type Finding, ok, warn } from './finding.ts';

export interface ControlSocketFacts {
  /** `--control-socket`; `undefined` for none. */
  readonly path: string | undefined;
  /** What is there. `served`: a socket at which somebody listens. `hidden`: not for this user to see. */
  readonly present: 'nothing' | 'socket' | 'served' | 'hidden' | 'other';
  /** The folder, or the nearest one above it that is there, can be written. */
  readonly isWritable: boolean;
}

/** Whether subcommands will reach the proxy. */
export function checkControlSocket({ path, present, isWritable }: ControlSocketFacts): readonly Finding[] {
  if (path === undefined) return [];
  if (present === 'hidden') {
    return [
      warn(`the control socket ${path} cannot be looked at as this user`, 'run this check as the user of the proxy'),
    ];
  }
  if (present === 'served') return [ok(`the control socket ${path} is served by the proxy that runs here`)];
  if (present === 'other') {
    return [warn(`something that is no socket is at ${path}, so subcommands would not reach the proxy`, 'remove it')];
  }
  if (!isWritable) {
    return [
      warn(
        `no socket can be made at ${path}, so subcommands would not reach the proxy`,
        'make its folder writable (RuntimeDirectory= of the unit), or give another --control-socket',
      ),
    ];
  }
  return [ok(`the control socket ${path} can be had`)];
}
