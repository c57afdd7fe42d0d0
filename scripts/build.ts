/*
 * `node scripts/build.ts FILE` writes the executable for this machine to FILE, and koffi's addon beside it as
 * `koffi.node`. Both are written under another name first and then renamed, so that a program that runs from there is
 * never half written.
 */
import { execFileSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { type BuildOptions, build, type Metafile, type Plugin } from 'esbuild';
import { addonOf, nodeOf, OWN_PLATFORM, type Platform } from './packaging/platforms.ts';

const ROOT = resolve(import.meta.dirname, '..');
const { resolve: resolvePackage } = createRequire(import.meta.url);

/** Node's marker for a single executable application: https://nodejs.org/api/single-executable-applications.html */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';

/**
 * V8 trades speed for memory, which the main thread can afford: traffic runs in the workers. The young generation may
 * grow so far that a start with very many Services no longer spends a third of its time on it. `expose-gc` lets both
 * processes give memory back, `disable-sigusr1` because that signal would open Node's debugger to every user of the
 * machine. Not `optimize-for-size`: it saves 15 MiB with 5,000 Services, but workers have it too, and their collections
 * then make the slowest requests a quarter slower.
 */
const NODE_OPTIONS = ['--heap-growing-percent=40', '--max-semi-space-size=8', '--expose-gc', '--disable-sigusr1'];

/** Only a run with a kubeconfig needs this package. It is half of all code, so it is a script of its own. */
const CLIENT = '@kubernetes/client-node/dist/config.js';

/** Everything but the helper process, whose memory it would fill. */
const PROGRAM = 'src/app/start.ts';

const SCRIPTS = {
  'main.js': 'src/main.ts',
  'program.js': PROGRAM,
  'worker.js': 'src/engine/fast/worker/main.ts',
  'client-node.js': CLIENT,
};

export interface Bundle {
  /** By file name. All characters are ASCII: V8 keeps other text with two bytes for each character. */
  readonly scripts: ReadonlyMap<keyof typeof SCRIPTS, string>;
  /** The folders of the packages whose code is in the scripts: `node_modules/js-yaml`. */
  readonly packages: ReadonlySet<string>;
}

/** Bundles src/: few plain scripts start faster, above all in each worker, than hundreds of TypeScript files. */
export async function bundle(platform = OWN_PLATFORM): Promise<Bundle> {
  const options = { ...OPTIONS, define: { ...OPTIONS.define, ADDON_SHA256: addonHash(platform) } };
  const built = await Promise.all(
    (Object.keys(SCRIPTS) as (keyof typeof SCRIPTS)[]).map(async (name) => {
      const { outputFiles, metafile } = await build({ ...options, entryPoints: [SCRIPTS[name]] });
      return { name, text: inAscii(outputFiles[0]!.text), packages: packagesIn(metafile) };
    }),
  );
  return {
    scripts: new Map(built.map(({ name, text }) => [name, text])),
    packages: new Set(built.flatMap(({ packages }) => packages)),
  };
}

/** koffi's JavaScript gives way to the addon alone, the program and the Kubernetes client to scripts read on demand. */
const substitutes: Plugin = {
  name: 'substitutes',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^koffi$/ }, () => ({ path: join(ROOT, 'src/sys/addon.ts') }));
    const assets = [
      [/^@kubernetes\/client-node\//, 'client-node.js'],
      [/^\.\/app\/start\.ts$/, 'program.js'],
    ] as const;
    for (const [filter, path] of assets) {
      onResolve({ filter }, ({ kind }) => (kind === 'entry-point' ? undefined : { path, namespace: 'asset' }));
    }
    onLoad({ filter: /./, namespace: 'asset' }, ({ path }) => ({
      contents: `
        import { getAsset } from 'node:sea';
        import { compileFunction } from 'node:vm';
        const code = compileFunction(getAsset('${path}', 'utf8'), ['module', 'require'], { filename: '${path}' });
        code(module, require);`,
    }));
  },
};

const OPTIONS = {
  absWorkingDir: ROOT,
  // The paths are in the result. They are the same wherever the sources are, also where node_modules is a link.
  preserveSymlinks: true,
  bundle: true,
  write: false,
  metafile: true,
  platform: 'node',
  format: 'cjs',
  target: 'node24',
  charset: 'ascii',
  plugins: [substitutes],
  // Only a run from the sources looks for files relative to this.
  define: { 'import.meta.url': '"file:///"' },
  // Not minified: a stack trace shows a readable line.
  logLevel: 'warning',
} satisfies BuildOptions;

/**
 * With escapes for what esbuild leaves: characters in comments, regular expressions and tagged templates. One of them
 * doubles the memory of the whole script. An escape means the same there, but to a tag that reads `raw`.
 */
function inAscii(script: string): string {
  return script.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function packagesIn({ inputs }: Metafile): string[] {
  return Object.keys(inputs).flatMap(
    (path) => /^(node_modules\/(?:.*\/node_modules\/)?(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? [],
  );
}

/** As a literal of JavaScript. */
function addonHash(platform: Platform): string {
  return JSON.stringify(hash('sha256', readFileSync(addonOf(platform)), 'hex'));
}

/** Of any platform, on any other: what goes into its Node is text, in a form that is the same for both. */
export async function writeExecutable(
  file: string,
  platform = OWN_PLATFORM,
  options: readonly string[] = [],
): Promise<void> {
  const folder = join(dirname(file), `unfinished-${process.pid}`);
  const inFolder = (name: string) => join(folder, name);
  // An empty environment: the build must not depend on its caller.
  const node = (...args: readonly string[]) =>
    execFileSync(process.execPath, args, { cwd: folder, env: {}, stdio: ['ignore', 'ignore', 'pipe'] });
  mkdirSync(folder, { recursive: true });
  try {
    const { scripts } = await bundle(platform);
    for (const [name, text] of scripts) writeFileSync(inFolder(name), text);
    copyFileSync(addonOf(platform), inFolder('koffi.node'));
    // Where npm ran with another umask, the group may write it; then the program would not use it.
    chmodSync(inFolder('koffi.node'), 0o644);
    const assets = ['program.js', 'worker.js', 'client-node.js', 'koffi.node'];
    const configuration = {
      main: 'main.js',
      output: 'application',
      disableExperimentalSEAWarning: true,
      // No code cache: it saves 30 ms of a start of 150, makes each build differ, and only a Node of the same kind of
      // machine could write it (docs/adr/0012).
      useCodeCache: false,
      execArgv: [...NODE_OPTIONS, ...options],
      // All arguments are the proxy's own, and NODE_OPTIONS is not meant for it.
      execArgvExtension: 'none',
      assets: Object.fromEntries(assets.map((name) => [name, name])),
    };
    writeFileSync(inFolder('application.json'), JSON.stringify(configuration));
    node('--experimental-sea-config', 'application.json');
    copyFileSync(nodeOf(platform), inFolder('program'));
    node(resolvePackage('postject/dist/cli.js'), 'program', 'NODE_SEA_BLOB', 'application', '--sentinel-fuse', FUSE);
    const answer = platform.cpu === process.arch ? `, ${versionAnswer(inFolder('program'))}` : '';
    renameSync(inFolder('koffi.node'), join(dirname(file), 'koffi.node'));
    renameSync(inFolder('program'), file);
    const megabytes = (statSync(file).size / 1e6).toFixed(1);
    process.stdout.write(`${relative(process.cwd(), file)}: ${megabytes} MB${answer}\n`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** That it starts at all. */
function versionAnswer(program: string): string {
  const begun = performance.now();
  const version = execFileSync(program, ['--version'], { encoding: 'utf8' }).trim();
  return `${version}; --version answered after ${Math.round(performance.now() - begun)} ms`;
}

if (import.meta.main) await writeExecutable(resolve(process.argv[2] as string));
