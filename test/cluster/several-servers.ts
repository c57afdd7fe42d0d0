import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Namespace } from '../netns/topology.ts';

/** What programs/follow-servers.ts prints. */
export type Observation =
  | { readonly kind: 'synced' }
  | { readonly kind: 'used'; readonly server: string }
  /** `address`: of its first endpoint; empty when the slice is gone. */
  | { readonly kind: 'slice'; readonly key: string; readonly address: string }
  | { readonly kind: 'log'; readonly message: string; readonly err: string };

const PROGRAM = new URL('programs/follow-servers.ts', import.meta.url).pathname;

/** Follows API servers in a process of its own, which ends with its namespace. */
export class Follower {
  readonly seen: Observation[] = [];
  readonly #child: ChildProcess;

  constructor(namespace: Namespace, kubeconfig: string, urls: readonly string[]) {
    this.#child = namespace.spawn([process.execPath, PROGRAM, kubeconfig, urls.join()], {}, [
      'ignore',
      'pipe',
      'inherit',
    ]);
    createInterface({ input: this.#child.stdout! }).on('line', (line) => this.seen.push(JSON.parse(line)));
  }

  get used(): string | undefined {
    return this.#of('used').at(-1)?.server;
  }

  get isSynced(): boolean {
    return this.#of('synced').length > 0;
  }

  /** The addresses of a slice, in the order in which they came. */
  addressesOf(key: string): readonly string[] {
    return this.#of('slice').flatMap((slice) => (slice.key === key ? slice.address : []));
  }

  logged(message: string): readonly string[] {
    return this.#of('log').flatMap((line) => (line.message === message ? line.err : []));
  }

  #of<K extends Observation['kind']>(kind: K): readonly Extract<Observation, { kind: K }>[] {
    return this.seen.filter((each): each is Extract<Observation, { kind: K }> => each.kind === kind);
  }
}
