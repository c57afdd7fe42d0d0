import { writeFileSync } from 'node:fs';
import type { IptablesMode, LogConfig } from '../config/config.ts';
import { PROGRAM } from '../config/version.ts';
import { allLocalAddresses } from '../kernel/addresses.ts';
import { NetlinkConntrack } from '../kernel/conntrack/conntrack.ts';
import { applyMachineSettings } from '../kernel/host-settings.ts';
import { createExec } from '../kernel/iptables/exec.ts';
import { installedFlavours } from '../kernel/iptables/flavour.ts';
import { createIptables } from '../kernel/iptables/iptables.ts';
import { describe, isTrusted, nodeHolder } from '../kernel/node-claim.ts';
import type { MachineSettings } from '../model/host-settings.ts';
import { createLog, type ProcessLog } from '../operate/log/log.ts';
import { descriptorOutput, type LogOutput, StatusLine } from '../operate/log/output.ts';
import { cleanUp } from '../sync/cleanup.ts';
import { systemClock as clock } from '../util/system-clock.ts';

/*
 * What the program does beside proxying. Each resolves with, or is, the exit code.
 */

const STDERR = 2;

/** Of the terminal that the log goes to, if it is one. */
export function openStatusLine(): StatusLine {
  // Some terminals say that they have 0.
  return new StatusLine(descriptorOutput(STDERR), () => process.stderr.columns || 80);
}

export function openLog({ verbosity, format }: LogConfig, output: LogOutput = descriptorOutput(STDERR)): ProcessLog {
  return createLog({ verbosity, format, output, clock });
}

export function refuse(why: string): number {
  process.stderr.write(`${PROGRAM}: ${why}\n`);
  return 1;
}

export async function cleanup(mode: IptablesMode, logConfig: LogConfig): Promise<number> {
  const holder = await nodeHolder();
  if (holder !== undefined && isTrusted(holder)) {
    return refuse(`--cleanup: ${describe(holder)} and would install its rules again; stop it first`);
  }
  const log = openLog(logConfig);
  const exec = createExec({ clock });
  // A node may have used both over time, so by default both are looked through.
  const flavours = mode === 'auto' ? await installedFlavours(exec) : [mode];
  if (flavours.length === 0) return refuse('no iptables is installed, so there are no rules to remove');
  const tools = await Promise.all(flavours.map((flavour) => createIptables({ flavour, exec, log })));
  const conntrack = new NetlinkConntrack({ log, localAddresses: allLocalAddresses });
  const failures = await cleanUp({ flavours: tools, conntrack, clock, log });
  await log.flush();
  return failures === 0 ? 0 : 1;
}

export async function initialize(settings: MachineSettings, logConfig: LogConfig): Promise<number> {
  const log = openLog(logConfig);
  applyMachineSettings(settings, log);
  await log.flush();
  return 0;
}

export function writeConfiguration(path: string, text: string): number {
  try {
    writeFileSync(path, text);
    return 0;
  } catch (error) {
    return refuse(`--write-config-to ${JSON.stringify(path)}: cannot be written (${(error as Error).message})`);
  }
}
