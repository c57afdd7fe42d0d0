import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { POD_ADDRESSES, Topology } from '../test/netns/topology.ts';
import type { Candidate } from './candidates.ts';
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

  /** `env`: of the candidate's process. */
  static async create(candidate: Candidate, env: NodeJS.ProcessEnv = {}): Promise<Rig> {
    const rig = new Rig(candidate, await Topology.create());
    try {
      await rig.topology.node.output(['sh', '-c', NODE_SYSCTLS]);
      await candidate.start(rig, env);
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
  run(argv: readonly string[], env: NodeJS.ProcessEnv = {}): Program {
    const program = new Program(this.topology.node, argv, env);
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

  async remove(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.stop()));
    this.topology.remove();
  }
}

/*
 * Ten thousand connections a second would fill the table of connections with ones that are over (120 s each), and the
 * kernel's DNAT sends packets back out of the bridge that they came in by, which is no reason to redirect the client.
 */
const NODE_SYSCTLS = [
  // Ours sets it itself; its peers are to have it, too.
  'echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse',
  'echo 5 > /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait',
  'for f in /proc/sys/net/ipv4/conf/*/send_redirects; do echo 0 > $f; done',
].join('\n');
