import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Captured, CapturedPortal } from './captured.ts';
import { type Namespace, output, type RunResult } from './topology.ts';
import { waitFor } from './wait.ts';

export type Flavour = 'nft' | 'legacy';

/** The flavour under test: `KUP_TEST_IPTABLES`, nft by default. */
export const FLAVOUR: Flavour = flavourFrom(process.env['KUP_TEST_IPTABLES'] ?? 'nft');

function flavourFrom(text: string): Flavour {
  if (text === 'nft' || text === 'legacy') return text;
  throw new Error(`KUP_TEST_IPTABLES must be nft or legacy, not "${text}"`);
}

/** How the proxy under test captures packets: `KUP_TEST_CAPTURE`, by iptables unless that is `nft`. */
export const CAPTURE = captureFrom(process.env['KUP_TEST_CAPTURE'] ?? 'iptables');

function captureFrom(text: string): 'iptables' | 'nft' {
  if (text === 'iptables' || text === 'nft') return text;
  throw new Error(`KUP_TEST_CAPTURE must be iptables or nft, not "${text}"`);
}

/** For titles of tests. */
export const METHOD = CAPTURE === 'nft' ? 'nft tables' : `iptables-${FLAVOUR}`;

/** The iptables programs of one flavour in one namespace. */
export class Iptables implements Captured {
  readonly #namespace: Namespace;
  readonly #flavour: Flavour;

  constructor(namespace: Namespace, flavour: Flavour = FLAVOUR) {
    this.#namespace = namespace;
    this.#flavour = flavour;
  }

  /** The table's lines, without comments and counters. */
  async save(table: 'nat' | 'filter' | 'mangle' = 'nat', family: 4 | 6 = 4): Promise<string[]> {
    const text = await this.#namespace.output([`${this.#program(family)}-save`, '-t', table]);
    return text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line) => line.replace(/ \[\d+:\d+\]$/, ''));
  }

  /** Of both tables that it uses, in their order. */
  async ours(family: 4 | 6 = 4): Promise<string[]> {
    const lines = [...(await this.save('nat', family)), ...(await this.save('filter', family))];
    return lines.filter((line) => line.includes('KUBE-') && !line.includes('KUBE-USERSPACE-RETIRED'));
  }

  async portals(family: 4 | 6 = 4): Promise<CapturedPortal[]> {
    return (await this.rules('KUBE-PORTALS-CONTAINER', 'nat', family)).map((rule) => {
      const word = (pattern: RegExp) => pattern.exec(rule)?.[1] ?? '';
      return {
        address: word(/ -d ([^ /]+)/),
        protocol: word(/ -p (\S+)/),
        port: Number(word(/ --dport (\d+)/)),
        name: word(/ --comment "?([^ "]+)/),
        localPort: Number(word(/ --to-destination \S*:(\d+)$/)),
      };
    });
  }

  /** Those of a chain; where jumps to buckets stand in it, those of the buckets. */
  async rules(chain: string, table: 'nat' | 'filter' = 'nat', family: 4 | 6 = 4): Promise<string[]> {
    const rules = (await this.save(table, family)).filter((line) => line.startsWith('-A '));
    const byChain = Map.groupBy(rules, (line) => line.split(' ')[1]);
    const inOrBelow = (name: string): string[] =>
      (byChain.get(name) ?? []).flatMap((line) => {
        const bucket = / -j (KUBE-USP-\S+)$/.exec(line)?.[1];
        return bucket === undefined ? [line] : inOrBelow(bucket);
      });
    return inOrBelow(chain);
  }

  /** One rule command, such as `-t nat -I PREROUTING …`; waits for the lock, which all namespaces share. */
  run(command: string, family: 4 | 6 = 4): Promise<RunResult> {
    return this.#namespace.run([this.#program(family), '-w', '30', ...command.split(' ')]);
  }

  async must(command: string, family: 4 | 6 = 4): Promise<void> {
    await this.#namespace.output([this.#program(family), '-w', '30', ...command.split(' ')]);
  }

  /**
   * Empties both tables of both families; again where a proxy puts its rules back in between, which hold its chains.
   */
  async flush(): Promise<void> {
    for (const family of [4, 6] as const) {
      for (const table of ['nat', 'filter']) {
        await waitFor(`an empty ${table}`, async () => {
          await this.must(`-t ${table} -F`, family);
          return (await this.run(`-t ${table} -X`, family)).code === 0;
        });
      }
    }
  }

  #program(family: 4 | 6): string {
    return `${family === 4 ? 'iptables' : 'ip6tables'}-${this.#flavour}`;
  }
}

/**
 * A folder for the front of PATH. Each program of iptables and nft in it logs that it was started, fails if requested
 * (one that writes rules also waits if requested), and otherwise becomes the real program.
 */
export class Shims {
  readonly directory: string;
  readonly #log: string;
  readonly #failure: string;
  readonly #hold: string;

  private constructor(directory: string) {
    this.directory = directory;
    this.#log = join(directory, 'log');
    this.#failure = join(directory, 'fail');
    this.#hold = join(directory, 'hold');
  }

  static async create(directory: string): Promise<Shims> {
    const shims = new Shims(directory);
    mkdirSync(directory, { recursive: true });
    for (const name of PROGRAMS) {
      const real = (await output(['sh', '-c', `command -v ${name} || true`])).trim();
      if (real === '') continue;
      const script = [
        '#!/bin/sh',
        `echo "${name} $*" >> ${shims.#log}`,
        // Programs are found by their version.
        `if [ -e ${shims.#failure} ] && [ "$1" != --version ]; then echo "${name}: told to fail" >&2; exit 1; fi`,
        `case "${name} $*" in *--version) ;; *-restore*|nft*-f*) while [ -e ${shims.#hold} ]; do sleep 0.02; done ;; esac`,
        `exec ${real} "$@"`,
      ];
      writeFileSync(join(directory, name), `${script.join('\n')}\n`);
      chmodSync(join(directory, name), 0o755);
    }
    return shims;
  }

  get path(): string {
    return `${this.directory}:${process.env['PATH']}`;
  }

  /** The command lines since the last {@link forget}. */
  commands(): string[] {
    return existsSync(this.#log) ? readFileSync(this.#log, 'utf8').split('\n').filter(Boolean) : [];
  }

  /** Those that write rules. Elements of nft tables are written by no program. */
  writes(): string[] {
    return this.commands().filter((command) => /^\S+-restore (?!--version)|^nft .*-f /.test(command));
  }

  forget(): void {
    rmSync(this.#log, { force: true });
  }

  fail(whether: boolean): void {
    if (whether) writeFileSync(this.#failure, '');
    else rmSync(this.#failure, { force: true });
  }

  /** Writes that are started meanwhile hang, and go on when this ends. */
  holdWrites(whether: boolean): void {
    if (whether) writeFileSync(this.#hold, '');
    else rmSync(this.#hold, { force: true });
  }
}

const PROGRAMS = ['nft'].concat(
  ['iptables', 'ip6tables'].flatMap((family) =>
    ['', '-nft', '-legacy'].flatMap((flavour) => ['', '-save', '-restore'].map((verb) => `${family}${flavour}${verb}`)),
  ),
);
