import { type Address, type IpFamily, parseAddress } from '../../model/address.ts';
import type { Conntrack, UdpFlows } from '../../model/conntrack.ts';
import type { Clock } from '../../util/clock.ts';
import type { Exec, ExecResult } from '../iptables/exec.ts';
import { FAMILIES, familiesOf, type IsStale, leadingTo, staleness } from './stale.ts';

export interface ToolConntrackOptions {
  readonly clock: Clock;
  readonly exec: Exec;
  /** This node's addresses of both families, asked for at each deletion. */
  readonly localAddresses: () => Iterable<Address>;
}

const PROGRAM = 'conntrack';

/** Lines read before the event loop gets its turn: some milliseconds. */
const SLICE_LINES = 2_000;

/**
 * `udp 17 29 src=10.244.1.20 dst=10.96.0.10 sport=40000 dport=53 [UNREPLIED] src=… dst=… sport=… dport=… mark=0 use=1`;
 * conntrack-tools write zones as ` zone=…`, and only those that are not the default one.
 */
const LINE =
  /^udp\s.*?\bsrc=\S+ dst=(\S+) sport=\d+ dport=(\d+) .*?\bsrc=(\S+) dst=\S+ sport=(\d+) dport=\d+ (?!.*\bzone)/;

export async function hasConntrackTool(exec: Exec): Promise<boolean> {
  return (await exec({ program: PROGRAM, args: ['--version'] })).outcome === 'exited';
}

/**
 * Through the program of conntrack-tools. It can delete by addresses and ports but not by "leads elsewhere", so the
 * entries are listed first, and then deleted by where they come from and lead to, not one by one.
 */
export class ToolConntrack implements Conntrack {
  readonly #options: ToolConntrackOptions;

  constructor(options: ToolConntrackOptions) {
    this.#options = options;
  }

  async deleteUdp(flows: readonly UdpFlows[]): Promise<number> {
    return await this.#deleteAll(familiesOf(flows), staleness(flows, new Set(this.#options.localAddresses())));
  }

  async deleteUdpTo(localPorts: ReadonlySet<number>): Promise<number> {
    return await this.#deleteAll(FAMILIES, leadingTo(localPorts, new Set(this.#options.localAddresses())));
  }

  async #deleteAll(families: Iterable<IpFamily>, isStale: IsStale): Promise<number> {
    let deleted = 0;
    for (const family of families) {
      for (const args of await this.#stalePaths(family, isStale)) deleted += await this.#delete(family, args);
    }
    return deleted;
  }

  /** The arguments that select the stale entries, which are many to a path. */
  async #stalePaths(family: IpFamily, isStale: IsStale): Promise<Iterable<readonly string[]>> {
    const { clock } = this.#options;
    const lines = (await this.#run(['-L', ...selector(family)])).stdout.split('\n');
    const paths = new Map<string, readonly string[]>();
    for (let i = 0; i < lines.length; i += SLICE_LINES) {
      for (const line of lines.slice(i, i + SLICE_LINES)) {
        const path = stalePath(line, isStale);
        if (path !== undefined) paths.set(path.join(' '), path);
      }
      await new Promise<void>((resolve) => clock.after(0, resolve));
    }
    return paths.values();
  }

  async #delete(family: IpFamily, path: readonly string[]): Promise<number> {
    const { stderr } = await this.#run(['-D', ...selector(family), ...path]);
    return Number(deletedCount(stderr));
  }

  async #run(args: readonly string[]): Promise<{ readonly stdout: string; readonly stderr: string }> {
    const result = await this.#options.exec({ program: PROGRAM, args });
    // It ends with 1 when there was nothing to delete, which is as good.
    if (result.outcome === 'exited' && (result.code === 0 || deletedCount(result.stderr) === '0')) return result;
    throw new Error(`"${PROGRAM} ${args.join(' ')}" failed: ${describe(result)}`);
  }
}

function selector(family: IpFamily): readonly string[] {
  return ['-f', family === 'IPv4' ? 'ipv4' : 'ipv6', '-p', 'udp'];
}

function stalePath(line: string, isStale: IsStale): readonly string[] | undefined {
  const [, destinationText = '', portText = '', replyText = '', replyPortText = ''] = LINE.exec(line) ?? [];
  const destination = parseAddress(destinationText);
  const replySource = parseAddress(replyText);
  if (destination === undefined || replySource === undefined) return undefined;
  const [destinationPort, replyPort] = [Number(portText), Number(replyPortText)];
  const isRedirected = replySource !== destination || replyPort !== destinationPort;
  const ends = { destination: () => destination, replySource: () => replySource };
  if (!isStale({ ...ends, destinationPort, replyPort, isRedirected })) return undefined;
  const original = ['--orig-dst', destination, '--orig-port-dst', portText];
  return [...original, '--reply-src', replySource, '--reply-port-src', replyPortText];
}

function deletedCount(stderr: string): string | undefined {
  return /(\d+) flow entries have been deleted/.exec(stderr)?.[1];
}

function describe(result: ExecResult): string {
  switch (result.outcome) {
    case 'exited':
      return `it ended with ${result.code}: ${result.stderr.trim()}`;
    case 'missing':
      return 'it is not installed any more';
    case 'timeout':
      return `it took more than ${result.timeoutMs} ms`;
    case 'failed':
      return result.err;
  }
}
