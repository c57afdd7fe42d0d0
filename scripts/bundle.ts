import { join, resolve } from 'node:path';
import { type BuildOptions, type BuildResult, build, type OutputFile, type Plugin, transform } from 'esbuild';

const ROOT = resolve(import.meta.dirname, '..');

/** What the executable runs: as itself, as the helper process, and in a worker thread. */
const PROGRAMS = { main: 'src/main.ts', 'iptables-helper': 'src/iptables/helper/main.ts' };
const WORKER = 'src/worker/main.ts';
const LOADER = 'scripts/sea/loader.ts';

/** JavaScript by file name. Its characters are all ASCII. */
export interface Bundle {
  /** The script that Node starts. */
  readonly loader: string;
  /** Functions of `exports`, `require` and `module` for the loader: the programs, and what only some runs need of them. */
  readonly modules: ReadonlyMap<string, string>;
  /** The script of a worker thread. */
  readonly worker: string;
  /** Whose code is in these, by their folders: `node_modules/yaml`. */
  readonly packages: ReadonlySet<string>;
}

type Built = BuildResult<typeof COMMON>;

/**
 * Bundles src/: plain JavaScript in few pieces starts faster and takes less memory, above all in each worker, than
 * TypeScript that is stripped as it is loaded.
 */
export async function bundle(): Promise<Bundle> {
  const results = await Promise.all([single(LOADER), single(WORKER), split(PROGRAMS)]);
  const [loader, worker, programs] = results;
  return {
    loader: script(loader),
    worker: script(worker),
    modules: await modules(programs),
    packages: new Set(results.flatMap(packagesIn)),
  };
}

const substitutes: Plugin = {
  name: 'substitutes',
  setup({ onResolve }) {
    onResolve({ filter: /^(koffi|string-width)$/ }, ({ path }) => ({ path: join(ROOT, `scripts/sea/${path}.ts`) }));
  },
};

const COMMON = {
  absWorkingDir: ROOT,
  bundle: true,
  write: false,
  metafile: true,
  platform: 'node',
  target: 'node24',
  charset: 'ascii',
  plugins: [substitutes],
  // Workers are scripts, which have no address; what is asked for relative to it is for a run from the sources.
  define: { 'import.meta.url': '"file:///"' },
  // Not minified: what fails shows its line.
  logLevel: 'warning',
} satisfies BuildOptions;

function single(entry: string): Promise<Built> {
  return build({ ...COMMON, entryPoints: [entry], format: 'cjs' });
}

/** esbuild splits only ES modules. */
function split(entryPoints: Record<string, string>): Promise<Built> {
  return build({ ...COMMON, entryPoints, outdir: ROOT, splitting: true, format: 'esm' });
}

function script({ outputFiles }: Built): string {
  return ascii((outputFiles[0] as OutputFile).text);
}

/**
 * Each ES module as a CommonJS one, so what is imported when it is needed is read when it is needed. Not ES modules to
 * the end: `node:http` as such is read with all that it exports, its lazy `WebSocket` too, which loads 14 MB that nobody
 * uses.
 */
async function modules({ outputFiles }: Built): Promise<Map<string, string>> {
  const transformed = outputFiles.map(async ({ path, text }): Promise<[string, string]> => {
    const { code } = await transform(text, {
      format: 'cjs',
      platform: 'node',
      target: 'node24',
      supported: { 'dynamic-import': false },
      charset: 'ascii',
    });
    return [path.slice(ROOT.length + 1), `(function (exports, require, module) {${ascii(code)}\n})`];
  });
  return new Map(await Promise.all(transformed));
}

/** Where node_modules is a link, paths lead through where it points to. */
function packagesIn({ metafile }: Built): string[] {
  return Object.values(metafile.outputs)
    .flatMap(({ inputs }) => Object.keys(inputs))
    .flatMap((path) => /(?:^|\/)(node_modules\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []);
}

/** A character beyond Latin-1, be it in a comment, would make V8 keep all of a source with two bytes for each. */
function ascii(source: string): string {
  return source.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
