import { writeFileSync } from 'node:fs';
import type { CommandLine, LogConfig } from '../config/config.ts';
import type { FlagTexts } from '../config/configure.ts';
import { configure } from '../config/configure.ts';
import { PROGRAM } from '../config/version.ts';
import { allLocalAddresses } from '../kernel/addresses.ts';
import { NetlinkConntrack } from '../kernel/conntrack/conntrack.ts';
import { readRegularFile } from '../kernel/files.ts';
import { applyMachineSettings } from '../kernel/host-settings.ts';
import { createExec } from '../kernel/iptables/exec.ts';
import { InstalledPrograms } from '../kernel/iptables/flavour.ts';
import { describe, isTrusted, nodeHolder } from '../kernel/node-claim.ts';
import type { MachineSettings } from '../model/host-settings.ts';
import { createLog, type ProcessLog } from '../operate/log/log.ts';
import { descriptorOutput } from '../operate/log/output.ts';
import { cleanUp } from '../sync/cleanup.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { everyMethod } from './capture.ts';
import { run } from './run.ts';

const STDERR = 2;

/** Everything but commands: does what the flags ask for. Resolves with the exit code, if it is known. */
export async function program(flags: FlagTexts): Promise<number | undefined> {
  let configuration = '';
  const asked = configure(flags, (path) => {
    configuration = readRegularFile(path);
    return configuration;
  });
  switch (asked.kind) {
    case 'cleanup':
      requireRoot();
      return await cleanup(asked);
    case 'init':
      return await initialize(asked.machine, asked.log);
    case 'write-config':
      return writeConfiguration(asked.path, asked.text);
    case 'run':
      requireRoot();
      await run({ ...asked, flags, configuration });
      return undefined;
  }
}

/* What the program does beside proxying. Each resolves with, or returns, the exit code. */

type Cleanup = Extract<CommandLine, { readonly kind: 'cleanup' }>;

async function cleanup({ iptablesMode: mode, connectionMark, log: logConfig }: Cleanup): Promise<number> {
  const holder = await nodeHolder();
  if (holder !== undefined && isTrusted(holder)) {
    return refuse(`--cleanup: ${describe(holder)} and would install its rules again; stop it first`);
  }
  const log = openLog(logConfig);
  const exec = createExec({ clock });
  // A node may have used several over time.
  const methods = await everyMethod(mode, connectionMark, { exec, programs: new InstalledPrograms(exec), log });
  const conntrack = new NetlinkConntrack({ log, localAddresses: allLocalAddresses });
  const failures = await cleanUp({ methods, conntrack, connectionMark, log });
  await log.flush();
  return failures === 0 ? 0 : 1;
}

async function initialize(settings: MachineSettings, logConfig: LogConfig): Promise<number> {
  const log = openLog(logConfig);
  applyMachineSettings(settings, log);
  await log.flush();
  return 0;
}

function writeConfiguration(path: string, text: string): number {
  try {
    writeFileSync(path, text);
    return 0;
  } catch (error) {
    return refuse(`--write-config-to ${JSON.stringify(path)}: cannot be written (${(error as Error).message})`);
  }
}

function openLog({ verbosity, format }: LogConfig): ProcessLog {
  return createLog({ verbosity, format, output: descriptorOutput(STDERR), clock });
}

function refuse(why: string): number {
  process.stderr.write(`${PROGRAM}: ${why}\n`);
  return 1;
}

/** Throws a sentence for the user unless this process is root, as iptables itself asks for that. */
function requireRoot(): void {
  const uid = process.geteuid?.() ?? 0;
  if (uid !== 0)
    throw new Error(`it runs as user ${uid}, and iptables needs root; start it as root, such as with sudo`);
}
