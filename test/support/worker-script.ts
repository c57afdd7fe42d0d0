import { hash } from 'node:crypto';
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const CACHE = new URL('../../node_modules/.cache/workers/', import.meta.url);
const ENTRY = new URL('../../src/engine/fast/worker/main.ts', import.meta.url);

/**
 * A worker of the fast engine as the program has it, one script. It starts in half the time of a hundred TypeScript
 * files, and tests start thousands.
 */
export const WORKER_SCRIPT = await bundled();

async function bundled(): Promise<URL> {
  const { outputFiles } = await build({
    entryPoints: [ENTRY.pathname],
    bundle: true,
    write: false,
    platform: 'node',
    format: 'esm',
    external: ['koffi'],
    logLevel: 'error',
  });
  const [{ text } = { text: '' }] = outputFiles;
  // The same path for the same text, so that V8's compile cache knows it.
  const file = new URL(`${hash('sha1', text)}.mjs`, CACHE);
  if (existsSync(file)) return file;
  mkdirSync(CACHE, { recursive: true });
  const unfinished = new URL(`${process.pid}.tmp`, CACHE);
  writeFileSync(unfinished, text);
  renameSync(unfinished, file);
  return file;
}
