import { setTimeout as sleep } from 'node:timers/promises';
import type { Agent } from '../../test/netns/agent.ts';

export const MIB = 1 << 20;

interface Target {
  readonly host: string;
  readonly port: number;
}

/** Each says something now and then, and must get the same back. */
export class HeldConnections {
  readonly #client: Agent;
  readonly #handles: readonly number[];
  readonly #broken = new Set<number>();
  #round = 0;

  private constructor(client: Agent, handles: readonly number[]) {
    this.#client = client;
    this.#handles = handles;
  }

  static async open(client: Agent, echo: Target, count: number): Promise<HeldConnections> {
    const handles: number[] = [];
    while (handles.length < count) {
      handles.push(...(await client.call('openMany', { ...echo, count: Math.min(200, count - handles.length) })));
    }
    return new HeldConnections(client, handles);
  }

  get broken(): number {
    return this.#broken.size;
  }

  async check(): Promise<void> {
    const round = String(this.#round++).padStart(4, '0');
    await Promise.all(
      this.#handles.map(async (connection) => {
        await this.#client.call('write', { connection, text: `${round}` });
        const read = this.#client.call('read', { connection, bytes: round.length });
        if ((await read.catch(() => '')) !== round) this.#broken.add(connection);
      }),
    );
  }
}

/** Sockets that ask for the name of their endpoint, which must stay the same. */
export class Flows {
  readonly #client: Agent;
  readonly #dns: Target;
  readonly #names = new Map<number, string | undefined>();
  readonly #broken = new Set<number>();

  private constructor(client: Agent, dns: Target) {
    this.#client = client;
    this.#dns = dns;
  }

  static async open(client: Agent, dns: Target, count: number): Promise<Flows> {
    const flows = new Flows(client, dns);
    for (let i = 0; i < count; i++) {
      const { socket } = await client.call('udpOpen', {});
      flows.#names.set(socket, await flows.#ask(socket));
    }
    return flows;
  }

  get broken(): number {
    return this.#broken.size;
  }

  async check(): Promise<void> {
    for (const [socket, name] of this.#names) if ((await this.#ask(socket)) !== name) this.#broken.add(socket);
  }

  async #ask(socket: number): Promise<string | undefined> {
    return (await this.#client.call('udpAsk', { socket, ...this.#dns, text: 'who' }))?.text.split(' ')[0];
  }
}

/** One after another in each direction, with checksums, until {@link stop}. */
export class Transfers {
  count = 0;
  /** Ended before their end. */
  failed = 0;
  /** Brought other bytes. */
  corrupt = 0;
  #isOver = false;
  readonly #running: Promise<unknown>;

  constructor(client: Agent, { sink, source }: { readonly sink: Target; readonly source: Target }, bytes: number) {
    const run = async (way: 'upload' | 'download', target: Target) => {
      while (!this.#isOver) {
        const outcome = await client.call(way, { ...target, bytes }).catch(() => 'failed' as const);
        this.count++;
        if (outcome === 'failed') {
          this.failed++;
          // A refused one fails at once: a bad second would count as thousands.
          await sleep(100);
        } else if (!outcome.intact) this.corrupt++;
      }
    };
    this.#running = Promise.all([run('upload', sink), run('download', source)]);
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#running;
  }
}
