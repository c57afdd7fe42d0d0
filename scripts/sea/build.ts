import { execFileSync } from 'node:child_process';
import {
  closeSync,
  fchmodSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { bundle } from '../bundle.ts';
import { composeExecutable } from './executable.ts';
import { START_FLAGS } from './flags.ts';
import { forAnyHashSeed } from './hash-seed.ts';

/*
 * Writes the one executable: `node build.ts FILE`, with the Node that is to be in it. The parts are made in a folder
 * beside it, and it is moved into place, so that a build beside a running program never leaves half a file.
 */

/**
 * What is written at once, recent kernels keep as one piece, and map so when one byte of it is needed: with all at once,
 * a proxy that is started soon afterwards has 33 MB more of the file in its resident memory.
 */
const PORTION = 65536;

const file = resolve(process.argv[2] as string);
const folder = join(dirname(file), `unfinished-${process.pid}`);
const inFolder = (name: string) => join(folder, name);

/** In no environment: nothing of it is to show in what is built. */
function node(...args: readonly string[]): void {
  execFileSync(process.execPath, args, { cwd: folder, env: {}, stdio: ['ignore', 'ignore', 'pipe'] });
}

/** Where koffi's package has its addon for glibc, which is what Node is for. */
function addonFile(): string {
  const koffi = createRequire(createRequire(import.meta.url).resolve('koffi'));
  return join(dirname(koffi.resolve(`@koromix/koffi-linux-${process.arch}`)), `linux_${process.arch}/koffi.node`);
}

/** What Node calls a preparation blob. */
async function application(): Promise<Buffer> {
  const { loader, modules, worker } = await bundle();
  writeFileSync(inFolder('loader.js'), loader);
  writeFileSync(inFolder('worker.js'), worker);
  for (const [name, text] of modules) writeFileSync(inFolder(name), text);
  // Any seed, but always the same: two builds of the same sources give the same file.
  node(...START_FLAGS, '--hash-seed=1', join(import.meta.dirname, 'code-cache.ts'), ...modules.keys(), '--version');
  for (const [name, source] of modules) {
    const cache = `${name}.cache`;
    writeFileSync(inFolder(cache), forAnyHashSeed(readFileSync(inFolder(cache)), { name, source }));
  }
  const assets = ['worker.js', ...[...modules.keys()].flatMap((name) => [name, `${name}.cache`])];
  const configuration = {
    main: 'loader.js',
    output: 'application',
    disableExperimentalSEAWarning: true,
    // Else that signal, at which many daemons open their logs again, opens Node's debugger to every user of the machine.
    execArgv: [...START_FLAGS, '--disable-sigusr1'],
    // Arguments are the proxy's alone, and NODE_OPTIONS is not for it.
    execArgvExtension: 'none',
    assets: Object.fromEntries(assets.sort().map((name) => [name, name])),
  };
  writeFileSync(inFolder('application.json'), JSON.stringify(configuration));
  node('--experimental-sea-config', 'application.json');
  return readFileSync(inFolder('application'));
}

function writeProgram(path: string, pieces: readonly Buffer[]): void {
  const fd = openSync(path, 'w');
  for (const piece of pieces) {
    for (let at = 0; at < piece.length; at += PORTION) writeSync(fd, piece, at, Math.min(PORTION, piece.length - at));
  }
  fchmodSync(fd, 0o755);
  closeSync(fd);
}

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
try {
  const pieces = composeExecutable({
    node: readFileSync(process.execPath),
    application: await application(),
    addon: readFileSync(addonFile()),
  });
  const program = inFolder('program');
  writeProgram(program, pieces);
  const begun = performance.now();
  const version = execFileSync(program, ['--version'], { encoding: 'utf8' }).trim();
  const tookMs = Math.round(performance.now() - begun);
  renameSync(program, file);
  const megabytes = (statSync(file).size / 1e6).toFixed(1);
  process.stdout.write(
    `${relative(process.cwd(), file)}: ${version}, ${megabytes} MB; --version answered after ${tookMs} ms\n`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
