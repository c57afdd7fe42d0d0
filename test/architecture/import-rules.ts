import { posix } from 'node:path';

/** Which folders of src/ a folder may import, besides itself. Data flows one way: no line leads back. */
export const FOLDERS: ReadonlyMap<string, readonly string[]> = new Map([
  ['util', []],
  ['sys', ['util']],
  ['model', ['util']],
  ['config', ['model', 'util']],
  ['services', ['model', 'util']],
  ['capture', ['model', 'util']],
  ['kubernetes', ['model', 'util']],
  ['manifests', ['model', 'util', 'kubernetes']],
  ['state', ['model', 'util', 'kubernetes', 'kernel']],
  ['cri', ['model', 'util']],
  ['sync', ['model', 'util', 'services', 'capture']],
  ['kernel', ['model', 'util', 'capture', 'sys']],
  ['engine', ['model', 'util', 'services', 'kernel', 'sys']],
  ['upgrade', ['model', 'util', 'sys']],
  ['operate', ['model', 'util', 'services', 'capture', 'kernel']],
  ['http', ['model', 'util', 'operate']],
  ['check', ['model', 'util', 'services', 'capture', 'kernel', 'kubernetes', 'manifests', 'config', 'state']],
  ['cli', ['model', 'util', 'operate', 'config']],
]);

/** The composition root, a file and a folder, names every implementation, and nothing else imports it. */
const ROOT = 'src/main.ts';
const ROOT_FOLDER = 'src/app/';

export function isRoot(file: string): boolean {
  return file === ROOT || file.startsWith(ROOT_FOLDER);
}

/** Everything that is not listed here is a new dependency: a decision, not an import. Paths are prefixes below src/. */
const PACKAGES: ReadonlyMap<string, readonly string[]> = new Map([
  ['js-yaml', ['util/yaml.ts', 'config/configuration-file.ts']],
  ['@kubernetes/client-node', ['kubernetes/']],
  ['yargs', ['cli/']],
  ['winston', ['operate/log/']],
  ['prom-client', ['http/']],
  ['koffi', ['sys/calls.ts']],
  ['@connectrpc/connect', ['cri/']],
  ['@connectrpc/connect-node', ['cri/']],
  ['@bufbuild/protobuf', ['cri/']],
]);

/** The builtins that reach out of the process, each with the few places that may. */
const EFFECTS: ReadonlyMap<string, readonly string[]> = new Map([
  ['node:child_process', ['util/run-program.ts', 'kernel/iptables/exec-helper.ts', 'upgrade/successor-process.ts']],
  // The last two only read and write addresses with it.
  [
    'node:net',
    [
      'engine/node/',
      'http/http-server.ts',
      'operate/control/socket-file.ts',
      'check/machine.ts',
      'kernel/node-claim.ts',
      'cri/container-runtime.ts',
      'model/address.ts',
      'util/ip-bytes.ts',
    ],
  ],
  ['node:http', ['http/http-server.ts', 'http/http-origin.ts', 'cli/client.ts', 'kubernetes/']],
  // The last one only connects sockets, to learn a source address.
  ['node:dgram', ['engine/node/', 'kernel/addresses.ts']],
]);

/** How a method of capture spells what it installs, and all but itself that may know it. */
const SPELLINGS: ReadonlyMap<string, readonly string[]> = new Map([
  ['src/capture/iptables/', ['src/kernel/iptables/', 'src/check/']],
]);

/** Decide and compute only: what they need of Node computes too. */
const PURE = ['model', 'services', 'capture'];
const PURE_BUILTINS = ['node:util', 'node:crypto'];

/** Files outside src/ that one of its files may import. */
const OUTSIDE: ReadonlyMap<string, string> = new Map([['package.json', 'src/config/version.ts']]);

const STATEMENT = /^[ \t]*(?:import|export)\b(?:[^'"`;]*?\bfrom)?\s*['"]([^'"]+)['"]/gm;
const DYNAMIC = /\b(?:import|require)\s*\(\s*(?:['"]([^'"]*)['"]|[^'"\s])/g;

/** The module specifiers that a source text names. `undefined` stands for a computed one. */
export function importsOf(source: string): (string | undefined)[] {
  const code = source.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '');
  return [...code.matchAll(STATEMENT), ...code.matchAll(DYNAMIC)].map((match) => match[1]);
}

/** A sentence for every import of `file` ("src/capture/portal.ts") that the tables above do not allow. */
export function violations(file: string, source: string): string[] {
  return importsOf(source).flatMap((specifier) => {
    const allowed =
      specifier === undefined ? 'a literal text, so that it can be checked' : whatIsAllowed(file, specifier);
    return allowed === undefined ? [] : [`${file} imports ${specifier ?? 'a computed path'}: allowed is ${allowed}`];
  });
}

/** `undefined` when the import is fine, else what would be. */
function whatIsAllowed(file: string, specifier: string): string | undefined {
  if (specifier.startsWith('.')) return whatIsAllowedRelative(file, specifier);
  if (isRoot(file)) return specifier.startsWith('node:') ? undefined : 'node: builtins and the folders of src/';
  const path = file.slice('src/'.length);
  const places = specifier.startsWith('node:') ? EFFECTS.get(specifier) : PACKAGES.get(packageOf(specifier));
  if (places !== undefined) {
    return places.some((place) => path.startsWith(place)) ? undefined : `${specifier} only in ${places.join(', ')}`;
  }
  if (!specifier.startsWith('node:')) return `of packages only ${[...PACKAGES.keys()].join(', ')}, each in its place`;
  const pure = PURE.includes(folderOf(file) ?? '');
  return pure && !PURE_BUILTINS.includes(specifier) ? `in a pure folder only ${PURE_BUILTINS.join(', ')}` : undefined;
}

function whatIsAllowedRelative(file: string, specifier: string): string | undefined {
  const target = posix.join(posix.dirname(file), specifier);
  if (!target.startsWith('src/')) {
    return OUTSIDE.get(target) === file ? undefined : 'nothing outside src/ but package.json in src/config/version.ts';
  }
  if (!target.endsWith('.ts')) return 'a file by its whole name, with .ts';
  if (isRoot(file)) return undefined;
  if (isRoot(target)) return 'nothing of the composition root';
  for (const [place, knowing] of SPELLINGS) {
    if (target.startsWith(place) && ![place, ...knowing].some((each) => file.startsWith(each))) {
      return `${place} only in ${knowing.join(', ')}`;
    }
  }
  const from = folderOf(file);
  const to = folderOf(target) ?? '';
  if (from === undefined) return `only ${ROOT} to lie outside a folder`;
  if (from === to) return undefined;
  const folders = FOLDERS.get(from);
  if (folders === undefined)
    return `no import before src/${from}/ is in the table of test/architecture/import-rules.ts`;
  return folders.includes(to) ? undefined : `for ${from}: ${[from, ...folders].join(', ')}`;
}

/** "js-yaml" of "js-yaml/dist/a.js", "@scope/name" of "@scope/name/dist/file.js". */
function packageOf(specifier: string): string {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}

/** `undefined` for a file directly in src/. */
function folderOf(file: string): string | undefined {
  const [, folder, ...rest] = file.split('/');
  return rest.length === 0 ? undefined : folder;
}
