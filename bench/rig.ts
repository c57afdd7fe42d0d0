import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Namespace, POD_ADDRESSES, Topology } from '../test/netns/topology.ts';
import type { Candidate } from './candidates.ts';
import { type CongestionControl, useCongestionControl } from './congestion-control.ts';
import { Program } from './program.ts';

/** Where clients find the Service. No machine has this address. */
export const CLUSTER_IP = '10.96.0.100';
export const BACKEND = POD_ADDRESSES[0];

export interface Port {
  readonly name: string;
  readonly protocol: 'tcp' | 'udp';
  /** Of the Service and of the backend alike, so that the limit "direct" differs by the address only. */
  readonly port: number;
}

export const HTTP: Port = { name: 'http', protocol: 'tcp', port: 80 };
export const IPERF: Port = { name: 'iperf', protocol: 'tcp', port: 5201 };
export const DNS: Port = { name: 'dns', protocol: 'udp', port: 53 };
export const ECHO: Port = { name: 'echo', protocol: 'udp', port: 7 };
export const PORTS: readonly Port[] = [HTTP, IPERF, DNS, ECHO];

/**
 * One candidate with a client, a node and a backend of its own. They differ in nothing but the proxy, so that all can
 * be alive at once and take turns without being restarted; who has no turn is idle.
 */
export class Rig {
  readonly candidate: Candidate;
  readonly topology: Topology;
  readonly #programs: Program[] = [];

  private constructor(candidate: Candidate, topology: Topology) {
    this.candidate = candidate;
    this.topology = topology;
  }

  /** `congestionControl`: of client, node and backend; `program`: see {@link Candidate.start}. */
  static async create(
    candidate: Candidate,
    { congestionControl, program }: { congestionControl: CongestionControl; program?: string },
  ): Promise<Rig> {
    const rig = new Rig(candidate, await Topology.create());
    const { client, node, pods } = rig.topology;
    try {
      await useCongestionControl(congestionControl, [client, node, ...pods]);
      await candidate.start(rig, program);
      return rig;
    } catch (error) {
      await rig.remove();
      throw error;
    }
  }

  /** The address that clients use. */
  get host(): string {
    return this.candidate.name === 'direct' ? BACKEND : CLUSTER_IP;
  }

  /** The candidate's process, for a profiler; `undefined` for the limits. */
  get pid(): number | undefined {
    return this.#programs[0]?.pid;
  }

  /** Starts a program on the node that stays as long as the rig. */
  run(argv: readonly string[]): Program {
    const program = new Program(this.topology.node, argv);
    this.#programs.push(program);
    return program;
  }

  /** Throws when a program of the candidate has ended. */
  check(): void {
    for (const program of this.#programs) {
      if (!program.running) throw new Error(`${program.name} has ended: ${program.said}`);
    }
  }

  /** Writes a file that goes with the rig; gives its path. */
  file(name: string, lines: readonly string[]): string {
    const path = join(this.topology.directory, name);
    writeFileSync(path, `${lines.join('\n')}\n`);
    return path;
  }

  /** Runs it with these settings of the node's kernel (file below /proc/sys: value), which are then as before. */
  async withSysctls<T>(sysctls: Readonly<Record<string, string>>, run: () => Promise<T>): Promise<T> {
    const { node } = this.topology;
    const before: (readonly [path: string, value: string])[] = [];
    try {
      for (const [path, value] of Object.entries(sysctls)) {
        before.push([path, (await node.output(['cat', `/proc/sys/${path}`])).trim()]);
        await setSysctl(node, path, value);
      }
      return await run();
    } finally {
      for (const [path, value] of before) await setSysctl(node, path, value);
    }
  }

  async remove(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.stop()));
    this.topology.remove();
  }
}

async function setSysctl(namespace: Namespace, path: string, value: string): Promise<void> {
  await namespace.output(['sh', '-c', `echo ${value} > /proc/sys/${path}`]);
}
