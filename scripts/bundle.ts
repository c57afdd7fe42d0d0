/*
 * Bundles src/ into a new folder of dist/ and prints its path: one file for the program, with what only some need in
 * chunks beside it, and one for each thread and process that it starts. Plain JavaScript in few files starts faster and
 * takes less memory, above all in each worker, than TypeScript that is stripped as it is loaded.
 *
 * The folder is named by its content, so what runs from an older one, and starts workers from there, is not disturbed.
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { build, type OutputFile, type Plugin } from 'esbuild';

const ROOT = resolve(import.meta.dirname, '..');
const MAIN = join(ROOT, 'src/main.ts');

/** How a source file names another one that a thread or process of its own is to run. */
const ENTRY = /new URL\('(\.[^']+\.ts)', import\.meta\.url\)/g;

/** `src/worker/main.ts` becomes `worker.js`; all outputs lie in one folder, so chunks find it beside them. */
function outputName(entry: string): string {
  return relative(join(ROOT, 'src'), dirname(entry)).replaceAll('/', '-');
}

function startedEntries(): string[] {
  return globSync('src/**/*.ts', { cwd: ROOT }).flatMap((file) =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(ENTRY)].map(([, path]) =>
      resolve(ROOT, dirname(file), path as string),
    ),
  );
}

const entryUrls: Plugin = {
  name: 'entry-urls',
  setup({ onLoad }) {
    onLoad({ filter: /\/src\/.*\.ts$/ }, ({ path }) => ({
      loader: 'ts',
      contents: readFileSync(path, 'utf8').replaceAll(ENTRY, (_, entry: string) => {
        return `new URL('./${outputName(resolve(dirname(path), entry))}.js', import.meta.url)`;
      }),
    }));
  },
};

/**
 * To import `node:http` as an ES module is to read all that it exports, its lazy `WebSocket` too, which loads Node's
 * undici: 14 MB that nobody uses. `require` reads nothing.
 */
const lazyHttp: Plugin = {
  name: 'lazy-http',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^(node:)?https?$/ }, ({ path, kind }) =>
      kind === 'import-statement' ? { path, namespace: 'required' } : undefined,
    );
    onLoad({ filter: /.*/, namespace: 'required' }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)});`,
    }));
  },
};

/** A single character beyond Latin-1, be it in a comment, makes V8 keep all of a source with two bytes for each. */
function withOneByteCharacters(source: string): string {
  return source.replace(/[^\0-\xff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

async function bundle(entry: string, name: string): Promise<Pick<OutputFile, 'path' | 'text'>[]> {
  const { outputFiles } = await build({
    entryPoints: { [name]: entry },
    outdir: join(ROOT, 'dist'),
    chunkNames: `${name}-[hash]`,
    bundle: true,
    write: false,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node24',
    // It looks for its addon beside its own files.
    external: ['koffi'],
    plugins: [entryUrls, lazyHttp],
    // Packages that are not ES modules require Node's own.
    banner: {
      js: "import { createRequire as requireFrom } from 'node:module';\nconst require = requireFrom(import.meta.url);",
    },
    // Not minified: what fails shows its line.
    logLevel: 'warning',
  });
  return outputFiles.map(({ path, text }) => ({ path, text: withOneByteCharacters(text) }));
}

const files = [
  ...(await bundle(MAIN, 'main')),
  ...(await Promise.all(startedEntries().map((entry) => bundle(entry, outputName(entry))))).flat(),
];
const hash = createHash('sha256');
for (const { path, text } of files) hash.update(basename(path)).update(text);
const folder = join(ROOT, 'dist', `app-${hash.digest('hex').slice(0, 16)}`);
if (!existsSync(folder)) {
  const unfinished = join(ROOT, 'dist', `unfinished-${process.pid}`);
  mkdirSync(unfinished, { recursive: true });
  for (const { path, text } of files) writeFileSync(join(unfinished, basename(path)), text);
  // ES modules, whatever package.json is above.
  writeFileSync(join(unfinished, 'package.json'), '{"type":"module"}\n');
  try {
    renameSync(unfinished, folder);
  } catch (error) {
    // Another build was faster.
    if (!existsSync(folder)) throw error;
    rmSync(unfinished, { recursive: true });
  }
}
process.stdout.write(`${folder}\n`);
