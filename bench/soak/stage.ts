import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Environment, TCP, UDP } from '../../test/netns/harness.ts';
import { FLAVOUR } from '../../test/netns/iptables.ts';
import type { PortOptions } from '../../test/netns/manifests.ts';
import { POD_ADDRESSES } from '../../test/netns/topology.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { seededRandom } from '../../test/support/seeded-random.ts';
import { Churn } from '../scale/churn.ts';
import { allHaveRules } from '../scale/consistency.ts';
import { redirectedBy } from '../scale/scale-node.ts';
import { type ApiStore, createApiStore } from '../scale/service-store.ts';
import { isUdp, type ScaleService, service } from '../scale/services.ts';
import { Flows, HeldConnections, MIB, Transfers } from '../upgrade/traffic.ts';
import { upgrade } from '../upgrade/upgrade.ts';
import { CALLERS, type Fault, type Losses, QUESTIONS_PER_SECOND } from './faults.ts';
import { comeToRest, type Rest } from './rest.ts';

/** Before and after the fault of a round. */
const QUIET_MS = 12_000;
const FAULT_MS = 10_000;
const CHANGES_PER_SECOND = 20;
/** Of the changes, those of ports and annotations. */
const RESHAPED = 0.3;
/** From this number on, the bench's Services are of all kinds. */
const FIRST_NUMBER = 5_000;
const FIRST_OF_TRAFFIC = 60_000;
const HELD = 100;
const FLOWS = 20;
/** A question that is answered late is not lost, on a machine that has too much to do. */
const PATIENCE_S = 60;
const ASKED = 20;
const TRANSFER_BYTES = 8 * MIB;

/** Services that no change touches, one for each kind of traffic. */
const TRAFFIC = {
  name: { port: 80, target: TCP.name },
  echo: { port: 80, target: TCP.echo },
  sink: { port: 80, target: TCP.sink },
  source: { port: 80, target: TCP.source },
  questions: { port: 53, target: UDP['udp-name'], protocol: 'UDP' },
  // Answered by a port that no fault closes.
  flows: { port: 53, target: UDP['udp-peer'], protocol: 'UDP' },
} as const satisfies Record<string, PortOptions>;

type Targets = Record<keyof typeof TRAFFIC, { readonly host: string; readonly port: number }>;

export interface StageOptions {
  readonly services: number;
  readonly seed: number;
}

/** What a round did, and lost. */
export interface Tally {
  readonly calls: number;
  readonly questions: number;
  readonly transfers: number;
  readonly changes: number;
  readonly lost: Losses;
}

interface Props {
  readonly environment: Environment;
  readonly random: () => number;
  readonly services: number;
  readonly store: ApiStore;
  readonly churn: Churn;
  readonly traffic: readonly ScaleService[];
  readonly targets: Targets;
  readonly disk: string;
}

/** A node with the proxy, its Services, what uses them and what changes them. */
export class Stage {
  readonly #props: Props;
  readonly #held: HeldConnections;
  readonly #flows: Flows;
  #pid: number;
  #first: Rest | undefined;

  private constructor(props: Props, held: HeldConnections, flows: Flows) {
    this.#props = props;
    this.#held = held;
    this.#flows = flows;
    this.#pid = props.environment.proxy.pid;
  }

  static async set(environment: Environment, { services, seed }: StageOptions): Promise<Stage> {
    const { topology, node, client } = environment;
    const random = seededRandom(seed);
    const store = await createApiStore(topology, node);
    const churn = new Churn(store, random, { first: FIRST_NUMBER, reshaped: RESHAPED });
    const traffic = Object.entries(TRAFFIC).map(([name, port], index): ScaleService => {
      const { number, clusterIP } = service(FIRST_OF_TRAFFIC + index);
      const affinity = name === 'flows' ? { affinitySeconds: 3_600 } : {};
      return { name, number, clusterIP, ports: [port], endpoints: POD_ADDRESSES, ...affinity };
    });
    for (const each of traffic) await store.create(each);
    await churn.fill(services);
    // Mounted where `ip netns exec` has put the program: nobody else sees it, and it goes with the program.
    const disk = environment.temporary('disk');
    const through = ['sh', '-c', 'mkdir "$0" && mount -t tmpfs -o size=32m tmpfs "$0" && exec "$@"', disk];
    const args = ['--connection-log', join(disk, 'connections'), `--udp-first-reply-timeout=${PATIENCE_S}s`];
    await environment.startProxy({ source: [...store.flags, ...args], through });
    const targets = Object.fromEntries(
      traffic.map(({ name, clusterIP, ports: [{ port }] }) => [name, { host: clusterIP, port }]),
    ) as Targets;
    const held = await HeldConnections.open(client, targets.echo, HELD);
    const flows = await Flows.open(client, targets.flows, FLOWS);
    const props = { environment, random, services, store, churn, traffic, targets };
    return new Stage({ ...props, disk }, held, flows);
  }

  choose<T>(list: readonly T[]): T {
    return list[Math.floor(this.#props.random() * list.length)]!;
  }

  readonly upgrade: Fault = {
    name: 'upgrade',
    begin: async () => {
      this.#pid = (await upgrade(this.#props.environment.proxy, this.#pid)).pid;
      return undefined;
    },
  };

  /** Changes and traffic, and this fault in the middle. */
  async perform(fault: Fault): Promise<Tally> {
    const { environment, churn, store, targets } = this.#props;
    const { client } = environment;
    const load = await client.call('startLoad', { ...targets.name, concurrency: CALLERS });
    const queries = await client.call('startQueries', {
      ...targets.questions,
      perSecond: QUESTIONS_PER_SECOND,
      patienceMs: 1_000 * PATIENCE_S,
    });
    const transfers = new Transfers(client, targets, TRANSFER_BYTES);
    const background = churn.background(CHANGES_PER_SECOND);
    await sleep(QUIET_MS);
    const victim = Math.floor(this.#props.random() * POD_ADDRESSES.length);
    const end = await fault.begin({ environment, plane: store.plane, pid: this.#pid, disk: this.#disk, victim });
    await sleep(FAULT_MS);
    await end?.();
    await sleep(QUIET_MS);
    const changes = await background.stop();
    const { names, failures } = await client.call('stopLoad', { load });
    const { asked, answered } = await client.call('stopQueries', { queries });
    await transfers.stop();
    const [held, flows] = [this.#held.broken, this.#flows.broken];
    await this.#held.check();
    await this.#flows.check();
    return {
      calls: sum(names),
      questions: asked,
      transfers: transfers.count,
      changes,
      lost: {
        calls: sum(failures),
        questions: asked - answered,
        transfers: transfers.failed,
        corrupt: transfers.corrupt,
        held: this.#held.broken - held,
        flows: this.#flows.broken - flows,
      },
    };
  }

  /** Makes the Services what they were, and asks some of them. */
  async restore(): Promise<void> {
    const { environment, churn, traffic, services } = this.#props;
    await churn.restore(services);
    const node = { redirected: async () => redirectedBy(await environment.iptables.save('nat')) };
    await allHaveRules({ node, churn: { services: [...churn.services, ...traffic] }, means: `iptables-${FLAVOUR}` });
    for (let asked = 0; asked < ASKED; asked++) await this.#isServed(this.choose(churn.services));
    // As logrotate does.
    rmSync(join(this.#disk, 'connections'));
    process.kill(this.#pid, 'SIGUSR2');
  }

  /** What it holds when nothing happens. */
  async rest(): Promise<Rest> {
    const rest = await comeToRest(this.#props.environment, { pid: this.#pid, held: HELD, first: this.#first });
    this.#first ??= rest;
    return rest;
  }

  /** In the mount namespace that each process of the proxy inherits. */
  get #disk(): string {
    return `/proc/${this.#pid}/root${this.#props.disk}`;
  }

  /** Until it is: what was written last may still be on its way. */
  async #isServed(service: ScaleService): Promise<void> {
    const { client } = this.#props.environment;
    const wanted = service.endpoints.map((address) => `pod-${POD_ADDRESSES.indexOf(address as never) + 1}`);
    const target = { host: service.clusterIP, port: service.ports[0].port };
    let seen: readonly string[] = [];
    const isRight = async () => {
      const names = isUdp(service)
        ? await client.call('udpFlows', { ...target, count: 8 })
        : (await client.call('requests', { ...target, count: 8 })).names;
      seen = Object.keys(names).sort();
      return service.affinitySeconds === undefined ? seen.join() === wanted.join() : wanted.includes(seen.join());
    };
    await waitFor(service.name, isRight).catch(() => {
      throw new Error(`${service.name} is served by ${seen.join(', ') || 'nobody'}, not by ${wanted.join(', ')}`);
    });
  }
}

function sum(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((total, each) => total + each, 0);
}
