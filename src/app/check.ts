import { availableParallelism } from 'node:os';
import { chooseMethod } from '../capture/choose.ts';
import type { CaptureMethod } from '../capture/method.ts';
import { checkClientAddresses } from '../check/client-addresses.ts';
import { checkCongestionControl } from '../check/congestion-control.ts';
import { type Finding, FindingsLog, fail, ok, warn } from '../check/finding.ts';
import { checkFirewall } from '../check/firewall.ts';
import { checkFamilies, checkLeftovers, checkTools } from '../check/iptables.ts';
import { checkKernelSettings, checkLimits, checkPrivileges } from '../check/kernel.ts';
import { checkKernelRules, inEmptyNamespace } from '../check/kernel-rules.ts';
import { thisMachine } from '../check/machine.ts';
import { checkListenAddresses, checkLocalPorts, checkNodePorts } from '../check/ports.ts';
import {
  type Check,
  exitCode,
  findingLine,
  findingsJson,
  type NamedFinding,
  runChecks,
  summaryLine,
} from '../check/run-checks.ts';
import { type KnownServices, sourceChecks } from '../check/source.ts';
import type { Terminal } from '../cli/command.ts';
import type { CommandLine, Config } from '../config/config.ts';
import type { FlagTexts } from '../config/configure.ts';
import { configure } from '../config/configure.ts';
import { UsageError } from '../config/usage-error.ts';
import { defaultWorkers } from '../engine/fast/create.ts';
import { localAddresses } from '../kernel/addresses.ts';
import { obstacleFinder } from '../kernel/client-addresses.ts';
import { readRegularFile } from '../kernel/files.ts';
import { createExec } from '../kernel/iptables/exec.ts';
import { InstalledPrograms, type Tools } from '../kernel/iptables/flavour.ts';
import { everyIptables } from '../kernel/iptables/iptables.ts';
import { FAMILIES, type IpFamily } from '../model/address.ts';
import { familiesOf, ServedFamilies } from '../sync/served-families.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { counted, messageOf } from '../util/text.ts';
import { candidates, type Means } from './capture.ts';
import { congestionControlProblem } from './congestion-control.ts';
import { ThisNode } from './node.ts';
import { httpPortsOf } from './pipeline.ts';

const EXEC_MS = 5_000;

/**
 * `kube-userspace-proxy check [-o json] [flags of a run]`: whether the proxy could serve here with these flags. Changes
 * nothing. Resolves with the exit code: 1 when a check fails.
 */
export async function check(
  { output, flags }: { readonly output: string; readonly flags: FlagTexts },
  { out }: Pick<Terminal, 'out'>,
): Promise<number> {
  const findings: NamedFinding[] = [];
  for await (const finding of runChecks(checksOf(flags), clock)) {
    findings.push(finding);
    // At once, because some checks take seconds.
    if (output === 'text') out(`${findingLine(finding)}\n`);
  }
  out(`${output === 'json' ? findingsJson(findings) : summaryLine(findings)}\n`);
  return exitCode(findings);
}

/** Without valid flags there is nothing else to look at. */
export function checksOf(flags: FlagTexts): readonly Check[] {
  const commandLine = commandLineOf(flags);
  const configuration: Check = { name: 'configuration', run: () => configurationFindings(commandLine) };
  if (commandLine instanceof UsageError || commandLine.kind !== 'run') return [configuration];
  const known: KnownServices = { services: [] };
  const { config } = commandLine;
  const families = familiesOf(config.bindAddress, localAddresses).flatMap(({ family }) =>
    localAddresses(family).length > 0 ? family : [],
  );
  return [configuration, ...sourceChecks(config, known, families, clock), ...machineChecks(config, known)];
}

function commandLineOf(flags: FlagTexts): CommandLine | UsageError {
  try {
    return configure(flags, readRegularFile);
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
}

function configurationFindings(commandLine: CommandLine | UsageError): readonly Finding[] {
  if (commandLine instanceof UsageError) return [fail(commandLine.message, 'correct it; nothing else was checked')];
  if (commandLine.kind !== 'run') {
    return [fail('these flags are not for a run', 'remove --cleanup, --init-only, --write-config-to and --version')];
  }
  const { config, warnings } = commandLine;
  const file = config.configFile === undefined ? '' : ` with ${config.configFile}`;
  return [ok(`the flags${file} are valid`), ...warnings.map((warning) => warn(warning, 'remove them, or ignore this'))];
}

/** In an order in which one failure explains the next. */
function machineChecks(config: Config, known: KnownServices): readonly Check[] {
  const exec = createExec({ clock, timeoutMs: EXEC_MS });
  const machine = thisMachine(exec, clock);
  const log = new FindingsLog('harmless if others reach that address from here');
  const node = new ThisNode(config, { name: '', log });
  const programs = new InstalledPrograms(exec);
  const means = { exec, programs, log: new FindingsLog('') };
  let tools: Tools | undefined;
  let method: CaptureMethod | undefined;
  let families = FAMILIES;
  /** Where trying changes nothing. */
  const apart = (of: CaptureMethod) => methodApart(of, config, { ...means, exec: inEmptyNamespace(exec) });
  return [
    { name: 'privileges', run: () => checkPrivileges(machine, config) },
    {
      name: 'iptables',
      run: async () => {
        if (config.capture === 'nft') return [];
        const checked = await checkTools(machine, programs, config.iptablesMode);
        tools = checked.tools;
        // Without them, nft may do.
        return config.capture === 'auto' && tools === undefined ? [] : checked.findings;
      },
    },
    {
      name: 'capture',
      run: async () => {
        try {
          const probe = async (each: CaptureMethod, family: IpFamily) => (await apart(each)).probe(family);
          const choice = await chooseMethod(config.capture, candidates(config, means), families, probe);
          method = choice.method;
          return [ok(`packets for Services are captured by ${method.description}: ${choice.why}`)];
        } catch (error) {
          const packages = { auto: '"iptables" or "nftables"', iptables: '"iptables"', nft: '"nftables"' };
          const advice = `install Debian's package ${packages[config.capture]}, and load its kernel modules`;
          return [fail(messageOf(error), advice)];
        }
      },
    },
    {
      name: 'families',
      run: async () => {
        if (method === undefined) return [];
        const checked = await servedFamilies(config, node, method, await apart(method));
        families = checked.families;
        return [...checked.findings, ...log.findings];
      },
    },
    {
      name: 'kernel rules',
      // The probe of nft has offered the whole table.
      run: async () => (method?.name === 'iptables' ? checkKernelRules(await apart(method), families, clock) : []),
    },
    { name: 'kernel', run: () => checkKernelSettings(machine, families, config) },
    {
      name: 'clients',
      run: async () => checkClientAddresses(await obstacleFinder(), families, config.clientAddresses),
    },
    {
      name: 'firewall',
      run: () => {
        const mark = method?.name === 'nft' ? config.dataPlane.connectionMark : undefined;
        return checkFirewall(exec, programs, { own: tools, families, mark });
      },
    },
    {
      name: 'other proxies',
      run: async () => checkLeftovers(machine, await everyIptables(programs, means), tools?.flavour),
    },
    { name: 'addresses', run: () => checkListenAddresses(machine, config) },
    { name: 'local ports', run: () => checkLocalPorts(machine, config, known.services) },
    {
      name: 'NodePorts',
      run: () => {
        const all = families.flatMap((family) => localAddresses(family));
        const ports = { all, nodePorts: node.nodePortAddresses(families), http: httpPortsOf(config) };
        return checkNodePorts(machine, ports, known.services);
      },
    },
    {
      name: 'congestion',
      run: async () => checkCongestionControl(machine, config.dataPlane, congestionControlProblem),
    },
    { name: 'limits', run: () => checkLimits(machine, config) },
    // koffi's addon, which may not load here, is not imported before this check.
    { name: 'engine', run: () => checkEngine(config, async () => (await import('../sys/self-check.ts')).selfCheck()) },
  ];
}

/** The same method by other means. */
async function methodApart({ name }: CaptureMethod, config: Config, means: Means): Promise<CaptureMethod> {
  const candidate = candidates(config, means).find((each) => each.name === name);
  if (candidate === undefined) throw new Error(`there is no method ${name}`);
  return await candidate.open();
}

/** The families that a run would serve; both where that is not known. */
async function servedFamilies(
  { bindAddress }: Config,
  node: ThisNode,
  method: CaptureMethod,
  apart: CaptureMethod,
): Promise<{ readonly families: readonly IpFamily[]; readonly findings: readonly Finding[] }> {
  const quiet = new FindingsLog('');
  const address = (family: IpFamily) => node.address(family);
  const probe = (family: IpFamily) => apart.probe(family);
  try {
    const wanted = familiesOf(bindAddress, localAddresses).map(({ family }) => family);
    const served = new ServedFamilies({ families: wanted, address, probe, clock, log: quiet });
    await served.begin();
    const families = served.active;
    // A node without an address of a family is nothing unusual; one that cannot have rules for it is.
    const other = wanted.find((family) => !families.includes(family) && address(family) !== undefined);
    const findings = await checkFamilies({
      served: families.map((family) => ({ family, address: address(family) ?? bindAddress })),
      leftOut: other && (await served.whyNot(other)),
      readRules: (family) => method.installed(family),
    });
    return { families, findings };
  } catch (error) {
    return { families: FAMILIES, findings: [fail(messageOf(error), 'see --bind-address')] };
  }
}

export async function checkEngine(
  { engine, workers = defaultWorkers() }: Pick<Config, 'engine' | 'workers'>,
  selfCheck: () => Promise<void>,
): Promise<readonly Finding[]> {
  if (engine === 'node') return [ok('the portable engine, as --dataplane says')];
  try {
    await selfCheck();
  } catch (error) {
    const found = `the fast engine cannot run here: ${messageOf(error)}`;
    if (engine === 'fast') return [fail(found, 'use --dataplane auto or node')];
    return [warn(`${found}; the portable one is used`, 'correct it, or expect less throughput')];
  }
  const cores = availableParallelism();
  const found = `the fast engine can run here, with ${counted(workers, 'worker')} on ${counted(cores, 'core')}`;
  return [workers > cores ? warn(found, 'set --workers to at most the number of cores, or remove it') : ok(found)];
}
