import { writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { gzipSync } from 'node:zlib';
import { UsageError } from '../config/usage-error.ts';
import { PROGRAM } from '../config/version.ts';
import type { ServiceView } from '../model/view.ts';
import type { Control } from '../operate/control/protocol.ts';
import { type ProgramRequest, type ProgramResult, runProgram } from '../util/run-program.ts';
import { type TarFile, tarOf } from '../util/tar.ts';
import { messageOf, withoutSecrets } from '../util/text.ts';
import { rfc3339 } from '../util/timestamp.ts';
import { command } from './command.ts';
import { askOne, CONTROL_SOCKET, servicesOf } from './shared.ts';

/** What a bug report needs to know of the machine, by the name of its file. None of it holds what clients send. */
const PROGRAMS: Readonly<Record<string, string>> = {
  uname: 'uname -a',
  'os-release': 'cat /etc/os-release',
  addresses: 'ip address',
  routes: 'ip route show table all',
  'ip-rules': 'ip rule',
  'iptables-version': 'iptables --version',
  'iptables-save': 'iptables-save',
  'ip6tables-save': 'ip6tables-save',
  nft: 'nft list ruleset',
  sockets: 'ss -s',
  listeners: 'ss -lntup',
  sysctl:
    'sysctl fs.file-nr net.ipv4.ip_forward net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports ' +
    'net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max',
  journal: `journalctl --unit ${PROGRAM} --lines 5000 --no-pager --output short-iso`,
};
const PROGRAM_MS = 10_000;
const MAX_OUTPUT_BYTES = 16 * 1024 * 1024;

export const SUPPORT_DUMP = command({
  name: 'support-dump',
  summary: 'write what a bug report needs into one archive, without secrets: look into it before you pass it on',
  options: {
    output: { alias: 'o', type: 'string', nargs: 1, describe: 'its file; when not given, one in the current folder' },
    ...CONTROL_SOCKET,
  },
  run: async ({ output, 'control-socket': socket }, terminal, { clock, connect }) => {
    const now = clock.wallNow();
    const run = (request: ProgramRequest) =>
      runProgram(request, { clock, timeoutMs: PROGRAM_MS, maxOutputBytes: MAX_OUTPUT_BYTES });
    const files = await collect(connect(socket), run, now, (why) =>
      terminal.err(`Warning: the dump has only what this node shows, and nothing from the proxy: ${why}.\n`),
    );
    const path = output ?? `${PROGRAM}-${rfc3339(now).replaceAll(/[-:]|\.\d+/g, '')}.tar.gz`;
    // No file is replaced, and only its owner may read it.
    await writeFile(path, gzipSync(tarOf(files, now)), { mode: 0o600, flag: 'wx' }).catch((error) => {
      throw unwritable(error, path);
    });
    terminal.out(`${path} has ${files.map(({ name }) => name).join(', ')}.\n`);
    return 0;
  },
});

function unwritable(error: NodeJS.ErrnoException, path: string): Error {
  if (error.code === 'EEXIST') return new UsageError(`${path} exists, and no file is replaced; give another --output`);
  if (error.code === 'ENOENT')
    return new UsageError(`there is no folder ${dirname(path)}; make it, or give another --output`);
  return new Error(`cannot write ${path}: ${messageOf(error)}`);
}

/** Never rejects: what cannot be had says why. `onSilent`: the proxy did not say what it is. */
export async function collect(
  control: Control,
  run: (request: ProgramRequest) => Promise<ProgramResult>,
  now: number,
  onSilent: (why: string) => void,
): Promise<readonly TarFile[]> {
  const files: TarFile[] = [];
  const add = async (name: string, text: () => Promise<string>) =>
    files.push({ name, text: withoutSecrets(await text().catch((error) => `${messageOf(error)}\n`)) });
  await add('about.txt', async () => `${PROGRAM}, ${rfc3339(now)}\n`);
  await add('node.json', async () => {
    const node = await askOne(control, 'node', {}).catch((error) => {
      onSilent(messageOf(error));
      throw error;
    });
    return JSON.stringify(node, withoutSecret, 1);
  });
  await add('services.json', async () => {
    const services: ServiceView[] = [];
    for await (const service of servicesOf(control, {})) services.push(service);
    return services.map((service) => `${JSON.stringify(service, withoutSecret)}\n`).join('');
  });
  for (const [name, line] of Object.entries(PROGRAMS)) {
    const [program = '', ...args] = line.split(' ');
    await add(`${name}.txt`, async () => `$ ${line}\n${printed(await run({ program, args }))}`);
  }
  return files;
}

/** Before the text is escaped, which would hide where a secret ends. */
function withoutSecret(_: string, value: unknown): unknown {
  return typeof value === 'string' ? withoutSecrets(value) : value;
}

function printed(result: ProgramResult): string {
  if (result.outcome === 'exited') return Buffer.from(result.stdout + result.stderr, 'latin1').toString();
  return result.outcome === 'failed' ? `${result.err}\n` : `${result.outcome}\n`;
}
