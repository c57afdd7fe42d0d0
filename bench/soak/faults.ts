import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ControlPlane } from '../../test/cluster/control-plane.ts';
import { type Environment, TCP, UDP } from '../../test/netns/harness.ts';
import { PROGRAM } from '../../test/netns/proxy.ts';
import { POD_ADDRESSES } from '../../test/netns/topology.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { helperOf } from '../scale/scale-node.ts';

export interface Losses {
  /** Connections that got no answer. */
  readonly calls: number;
  readonly questions: number;
  readonly transfers: number;
  /** Transfers that brought other bytes. */
  readonly corrupt: number;
  /** Connections that are open all the time. */
  readonly held: number;
  /** UDP flows that another endpoint answered, or none. */
  readonly flows: number;
}

/** What faults befall. */
export interface Scene {
  readonly environment: Environment;
  readonly plane: ControlPlane;
  /** Of the proxy. */
  readonly pid: number;
  /** A small disk of its own, with its connection log. */
  readonly disk: string;
  /** One of the pods. */
  readonly victim: number;
}

export interface Fault {
  readonly name: string;
  /** The losses that it explains; of the others there must be none. */
  readonly explains?: Partial<Losses>;
  /** Gives what ends it. */
  begin(scene: Scene): Promise<(() => unknown) | undefined>;
}

export const CALLERS = 4;
export const QUESTIONS_PER_SECOND = 10;

/** They shall be back within five seconds; machines may be five times as slow as ours. */
const REPAIRED_MS = 25_000;

export const FAULTS: readonly Fault[] = [
  {
    name: 'none',
    begin: async () => undefined,
  },
  {
    name: 'endpoint dies',
    // What it had accepted and not answered: one connection of each caller, and the datagrams of a second.
    explains: { calls: CALLERS, questions: QUESTIONS_PER_SECOND },
    async begin({ environment, victim }) {
      const pod = environment.pods[victim]!;
      await pod.call('unlisten', { port: TCP.name });
      return async () => {
        await pod.serve(TCP.name, 'name');
        await pod.serve(UDP['udp-name'], 'udp-name');
      };
    },
  },
  {
    name: 'rules flushed',
    // All that is new, until they are back. What is established goes on.
    explains: { calls: Number.POSITIVE_INFINITY, questions: Number.POSITIVE_INFINITY, transfers: 2 },
    async begin({ environment: { iptables } }) {
      await iptables.must('-t nat -F');
      const areBack = async () => (await iptables.rules('KUBE-PORTALS-CONTAINER')).length > 0;
      await waitFor('the rules are back', areBack, REPAIRED_MS);
      return undefined;
    },
  },
  {
    name: 'API server hangs',
    async begin({ plane }) {
      plane.signalApiServer('SIGSTOP');
      return () => plane.signalApiServer('SIGCONT');
    },
  },
  {
    name: 'helper killed',
    async begin({ pid }) {
      process.kill(helperOf(pid), 'SIGKILL');
      return undefined;
    },
  },
  {
    name: 'log disk full',
    async begin({ disk }) {
      const filler = join(disk, 'filler');
      try {
        for (;;) writeFileSync(filler, Buffer.alloc(4_096), { flag: 'a' });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
      }
      return () => rmSync(filler);
    },
  },
  {
    name: 'drain',
    async begin({ environment, victim }) {
      const run = (verb: 'drain' | 'undrain') =>
        environment.topology.node.output([
          PROGRAM,
          verb,
          `${POD_ADDRESSES[victim]}:${TCP.name}`,
          `--control-socket=${environment.proxy.controlSocket}`,
        ]);
      await run('drain');
      return () => run('undrain');
    },
  },
];
