import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { Draws } from '../support/draws.ts';
import type { OpenTarget } from './target.ts';

/* The process of one target. */

export interface Limits {
  readonly seconds: number;
  readonly count: number;
  readonly seed: number;
}

/** What it tells `fuzz.ts`. */
export type News =
  | { readonly kind: 'alive' }
  | { readonly kind: 'failure'; readonly file: string; readonly stack: string }
  | { readonly kind: 'end'; readonly inputs: number; readonly replayed: number; readonly seconds: number };

/** Seldom enough to cost nothing. */
const NEWS_MS = 1_000;

const [name = '', current = '', limits = ''] = process.argv.slice(2);
const { seconds, count, seed }: Limits = JSON.parse(limits);
const tell = (news: News) => void process.send?.(news);

const cleanups: (() => unknown)[] = [];
const { open } = (await import(`./targets/${name}.ts`)) as { readonly open: OpenTarget };
const target = await open({ after: (cleanup) => void cleanups.push(cleanup as () => unknown) });
const corpus = readCorpus(name);
const known = [...(target.seeds ?? []), ...corpus.values()];
assert.ok(known.length > 0, `${name} has nothing to begin with`);

const reported = new Set<string>();
for (const [file, input] of corpus) await attempt(input, file);
for (const input of target.seeds ?? []) await attempt(input);
const began = performance.now();
const end = began + seconds * 1_000;
let toldMs = began;
let inputs = 0;
for (; inputs < count && performance.now() < end; inputs++) {
  // Each input has draws of its own, so it does not depend on what those before it drew.
  await attempt(target.make(known, new Draws(seed * 2 ** 24 + inputs)));
  if (performance.now() - toldMs < NEWS_MS) continue;
  toldMs = performance.now();
  tell({ kind: 'alive' });
}
tell({ kind: 'end', inputs, replayed: known.length, seconds: (performance.now() - began) / 1_000 });
for (const cleanup of cleanups.reverse()) await cleanup();
process.disconnect();

function readCorpus(of: string): ReadonlyMap<string, Buffer> {
  const folder = corpusOf(of);
  return new Map(
    readdirSync(folder)
      .sort()
      .map((file) => [join(folder, file), readFileSync(join(folder, file))]),
  );
}

function corpusOf(of: string): string {
  const folder = join(import.meta.dirname, 'corpus', of);
  mkdirSync(folder, { recursive: true });
  return folder;
}

/** Where the same failure comes again, the first input is enough. */
async function attempt(input: Buffer, file?: string): Promise<void> {
  // If this process dies or hangs, `fuzz.ts` finds the input there.
  writeFileSync(current, input);
  try {
    await target.run(input);
  } catch (error) {
    const stack = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const place = stack.split('\n').find((line) => /\/(?:src|test\/fuzz\/targets)\//.test(line)) ?? stack;
    if (reported.has(place)) return;
    reported.add(place);
    tell({ kind: 'failure', file: relative(process.cwd(), file ?? keep(input)), stack });
  }
}

function keep(input: Buffer): string {
  const file = join(corpusOf(name), `found-${createHash('sha256').update(input).digest('hex').slice(0, 8)}`);
  writeFileSync(file, input);
  return file;
}
