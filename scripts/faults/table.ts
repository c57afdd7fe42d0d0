import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export const ROOT = join(import.meta.dirname, '../..');

/** A test that shows what the proxy does at a fault. */
export interface Proof {
  /** Where its title stands: `test/cluster/faults.test.ts`. */
  readonly file: string;
  /** With `…` for each part that the code puts in. */
  readonly title: string;
}

export interface Fault {
  readonly number: number;
  readonly name: string;
  readonly proofs: readonly Proof[];
}

const ROW = /^\| (?<number>\d+) \| (?<name>.*?) \| .*? \| (?<tests>.*?) \|$/gm;
const PROOF = /\[[^\]]*\]\(\.\.\/(?<file>test\/[^)]+)\): (?<title>.*?)(?=<br>|$)/g;

/** The table of docs/reliability.md, the only list of these tests. */
export function readFaults(): Fault[] {
  const page = readFileSync(join(ROOT, 'docs/reliability.md'), 'utf8');
  return [...page.matchAll(ROW)].map(({ groups }) => ({
    number: Number(groups?.['number']),
    name: groups?.['name'] ?? '',
    proofs: [...(groups?.['tests'] ?? '').matchAll(PROOF)].map((proof) => ({ ...(proof.groups as unknown as Proof) })),
  }));
}

/** The files to run: a suite runs with each engine. */
export function filesOf({ file }: Proof): string[] {
  if (!file.startsWith('test/compliance/data-plane/')) return [file];
  return globSync('test/compliance/{fast,node}-engine.test.ts', { cwd: ROOT });
}

/** Matches its title; `inserted` is what may stand at each `…`. */
export function titlePattern({ title }: Pick<Proof, 'title'>, inserted: string): string {
  return title.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&').replaceAll('…', inserted);
}
