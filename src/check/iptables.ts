import { dirname } from 'node:path';
import { isKubeProxys, isOurs } from '../capture/iptables/chains.ts';
import { parseDump } from '../capture/iptables/dump.ts';
import type { Iptables, Table } from '../capture/iptables/iptables.ts';
import type { Exec } from '../kernel/iptables/exec.ts';
import type { Flavour, InstalledPrograms, Tools } from '../kernel/iptables/flavour.ts';
import { type Address, FAMILIES, type IpFamily } from '../model/address.ts';
import { CaptureError } from '../model/capture.ts';
import { counted, messageOf } from '../util/text.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import type { Machine } from './machine.ts';

/** The default of xtables' `XTABLES_LOCKFILE`. */
const LOCK = '/run/xtables.lock';

/** Finds the iptables tools of a run, and checks that they are the right ones. */
export async function checkTools(
  machine: Pick<Machine, 'read' | 'isWritable'>,
  programs: InstalledPrograms,
  mode: Flavour | 'auto',
): Promise<{ readonly tools: Tools | undefined; readonly findings: readonly Finding[] }> {
  const tools = await programs.choose(mode);
  if (tools === undefined) {
    const missing =
      mode === 'auto' ? 'no iptables-restore is on PATH' : `no iptables of the ${mode} flavour is on PATH`;
    return { tools, findings: [fail(missing, 'install Debian\'s package "iptables"')] };
  }
  const { flavour } = tools;
  const findings = [flavourFinding(flavour, mode, await programs.hint())];
  const lock = process.env['XTABLES_LOCKFILE'] ?? LOCK;
  const isLockable =
    machine.isWritable(lock) || (machine.read(lock) === undefined && machine.isWritable(dirname(lock)));
  if (flavour === 'legacy' && !isLockable) {
    findings.push(
      fail(
        `the lock ${lock}, which iptables-legacy takes, cannot be written`,
        'mount it from the host into the Pod, or let the unit write it (ReadWritePaths=/run)',
      ),
    );
  }
  return { tools, findings };
}

function flavourFinding(flavour: Flavour, mode: Flavour | 'auto', hinted: Flavour | undefined): Finding {
  if (hinted !== undefined && hinted !== flavour) {
    const [why, advice] =
      mode === 'auto'
        ? ['that is not installed', `install iptables-${hinted}`]
        : [`--iptables-mode says ${mode}`, 'remove --iptables-mode'];
    return warn(`the kubelet uses iptables-${hinted}, and ${why}: the kernel applies the rules of both`, advice);
  }
  if (mode !== 'auto') return ok(`iptables-${flavour}: --iptables-mode says so`);
  return ok(`iptables-${flavour}: ${hinted === undefined ? "this machine's default" : 'as the kubelet'}`);
}

export interface FamilyFacts {
  /** The primary one first. */
  readonly served: readonly { readonly family: IpFamily; readonly address: Address }[];
  /** Why the other family is not served although the node has an address of it. */
  readonly leftOut: string | undefined;
  /** Reads rules of a family. Rejects with a {@link CaptureError}. */
  readonly readRules: (family: IpFamily) => Promise<unknown>;
}

/** Which families a run would serve, and whether the kernel has tables for the primary one. */
export async function checkFamilies({ served, leftOut, readRules }: FamilyFacts): Promise<readonly Finding[]> {
  const [primary] = served;
  if (primary === undefined) return [];
  try {
    await readRules(primary.family);
  } catch (error) {
    if (!(error instanceof CaptureError && error.mayPass)) return [withoutRules(primary.family, messageOf(error))];
  }
  const found = served.map(({ family, address }) => `${family} (node address ${address})`).join(' and ');
  if (leftOut === undefined) return [ok(`Services are served over ${found}`)];
  return [warn(`Services are served over ${found} only: ${leftOut}`, 'correct it if the cluster has both families')];
}

/** What the nft tools say where the kernel has no nf_tables. */
const NO_NF_TABLES = /Failed to initialize nft|Could not fetch rule set generation id/;

function withoutRules(family: IpFamily, err: string): Finding {
  const found = `there can be no rules for ${family}: ${err}`;
  if (err.includes('needs root')) return fail(found, 'see the check of privileges');
  if (NO_NF_TABLES.test(err)) return fail(found, 'load nf_tables (modprobe nf_tables), or use --iptables-mode legacy');
  const prefix = family === 'IPv4' ? 'ip' : 'ip6';
  return fail(found, `a module may be missing (modprobe ${prefix}table_nat ${prefix}table_filter)`);
}

/** Finds other proxies on this node, and what they have left behind. `own`: the flavour of a run. */
export async function checkLeftovers(
  machine: Machine,
  iptables: readonly Iptables[],
  own: Flavour | undefined,
): Promise<readonly Finding[]> {
  const serving = await machine.servingProxy();
  const who = serving?.pid === undefined ? 'in another container' : `process ${serving.pid}`;
  const findings = [
    ...(serving === undefined
      ? []
      : [ok(`a proxy of this program serves this node (${who}); a second one would not start`)]),
    ...machine.neighbours().flatMap(({ name, pid }) => {
      if (name !== 'kube-proxy') return [];
      return fail(
        `kube-proxy runs on this node (process ${pid}): the rules of two proxies take the same packets`,
        'keep it off this node (nodeSelector of its DaemonSet, or stop its unit), then run --cleanup',
      );
    }),
    ...(await leftRules(iptables, own)),
    ...leftByIpvs(machine),
    ...leftByNftables(await nft(machine.exec, 'list', 'tables')),
  ];
  return findings.length === 0 ? [ok('no other proxy runs here or has left anything')] : findings;
}

/** One finding for all chains of a flavour. */
async function leftRules(all: readonly Iptables[], own: Flavour | undefined): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const iptables of all) {
    const { flavour, canRemove } = iptables;
    const cleanup = canRemove
      ? 'kube-userspace-proxy --cleanup, before the proxy starts'
      : `install iptables-${flavour}, which alone can remove them, and run --cleanup; or restart the node`;
    const chains = await chainsIn(iptables);
    const tables = `the tables of iptables-${flavour}`;
    if (chains === undefined) {
      if (flavour !== own) continue;
      findings.push(
        warn(`${tables} cannot be read, so leftovers in them are not known`, 'see privileges and families'),
      );
      continue;
    }
    const kubeProxys = chains.filter(({ table, name }) => isKubeProxys(table, name)).length;
    const ours = chains.filter(({ table, name }) => isOurs(table, name) && !isKubeProxys(table, name)).length;
    if (kubeProxys > 0) {
      const found = `${tables} have ${counted(kubeProxys, 'chain')} of kube-proxy, which may send clients elsewhere`;
      findings.push(warn(found, cleanup));
    }
    const found = `${tables} have ${counted(ours, 'chain')} of this proxy`;
    if (ours > 0 && flavour === own) findings.push(ok(`${found}, which a run takes over`));
    else if (ours > 0) findings.push(warn(`${found}, which a run would not use, and which lead nowhere`, cleanup));
  }
  return findings;
}

/** `undefined` when no table can be read. A kernel without a family has no tables of it. */
async function chainsIn(
  iptables: Iptables,
): Promise<readonly { readonly table: Table; readonly name: string }[] | undefined> {
  const chains: { table: Table; name: string }[] = [];
  let isRead = false;
  for (const family of FAMILIES) {
    for (const table of ['nat', 'filter'] as const) {
      const text = await iptables.save(family, table).catch(() => undefined);
      isRead ||= text !== undefined;
      const ofTable = parseDump(text ?? '').get(table) ?? new Map();
      for (const name of ofTable.keys()) chains.push({ table, name });
    }
  }
  return isRead ? chains : undefined;
}

function leftByIpvs(machine: Machine): readonly Finding[] {
  const services = [...(machine.read('/proc/net/ip_vs') ?? '').matchAll(/^(?:TCP|UDP|SCTP) /gm)].length;
  const left = [
    ...(services > 0 ? [`${counted(services, 'virtual server')} of IPVS`] : []),
    ...(machine.interfaces().includes('kube-ipvs0') ? ['the interface kube-ipvs0 with the addresses of Services'] : []),
  ];
  if (left.length === 0) return [];
  const advice = 'ipvsadm --clear; ip link delete kube-ipvs0 (--cleanup removes rules only)';
  return [warn(`kube-proxy in ipvs mode has left ${left.join(' and ')}`, advice)];
}

function leftByNftables(list: string): readonly Finding[] {
  return [...list.matchAll(/^table (ip6? kube-proxy)$/gm)].map(([, table]) =>
    warn(`kube-proxy in nftables mode has left the table ${table}`, `nft delete table ${table}`),
  );
}

/** The output of nft; empty when it fails or is not installed. */
export async function nft(exec: Exec, ...args: readonly string[]): Promise<string> {
  const ended = await exec({ program: 'nft', args });
  return ended.outcome === 'exited' ? ended.stdout : '';
}
