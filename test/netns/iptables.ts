import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
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

/** The iptables programs of one flavour in one namespace. */
export class Iptables {
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

  /** The lines of both tables that we use. */
  async dump(): Promise<string[]> {
    return [...(await this.save('nat')), ...(await this.save('filter'))];
  }

  /** Those of a chain; where jumps to buckets stand in it, those of the buckets. */
  async rules(chain: string, table: 'nat' | 'filter' = 'nat'): Promise<string[]> {
    const rules = (await this.save(table)).filter((line) => line.startsWith('-A '));
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
 * A folder for the front of PATH. Each iptables program in it logs that it was started, fails if requested (a restore
 * also waits if requested), and otherwise becomes the real program.
 */
export class IptablesShims {
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

  static async create(directory: string): Promise<IptablesShims> {
    const shims = new IptablesShims(directory);
    mkdirSync(directory, { recursive: true });
    for (const name of PROGRAMS) {
      const real = (await output(['sh', '-c', `command -v ${name} || true`])).trim();
      if (real === '') continue;
      const script = [
        '#!/bin/sh',
        `echo "${name} $*" >> ${shims.#log}`,
        // Programs are found by their version.
        `if [ -e ${shims.#failure} ] && [ "$1" != --version ]; then echo "${name}: told to fail" >&2; exit 1; fi`,
        ...(name.endsWith('-restore')
          ? [`while [ -e ${shims.#hold} ] && [ "$1" != --version ]; do sleep 0.02; done`]
          : []),
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

  restores(): string[] {
    return this.commands().filter((command) => command.split(' ')[0]?.endsWith('-restore'));
  }

  forget(): void {
    rmSync(this.#log, { force: true });
  }

  fail(whether: boolean): void {
    if (whether) writeFileSync(this.#failure, '');
    else rmSync(this.#failure, { force: true });
  }

  /** Restores that are started meanwhile hang, and go on when this ends. */
  holdRestores(whether: boolean): void {
    if (whether) writeFileSync(this.#hold, '');
    else rmSync(this.#hold, { force: true });
  }
}

const PROGRAMS = ['iptables', 'ip6tables'].flatMap((family) =>
  ['', '-nft', '-legacy'].flatMap((flavour) => ['', '-save', '-restore'].map((verb) => `${family}${flavour}${verb}`)),
);
