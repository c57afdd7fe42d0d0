import { accessSync, constants, existsSync, readFileSync, statSync } from 'node:fs';
import { availableParallelism, cpus, networkInterfaces } from 'node:os';
import { dirname } from 'node:path';
import type { Config } from '../config/config.ts';
import { defaultWorkers } from '../engine/fast/create.ts';
import { localAddresses } from '../kernel/addresses.ts';
import { conntrackNumbers, TW_REUSE } from '../kernel/host-settings.ts';
import { createExec } from '../kernel/iptables/exec.ts';
import {
  detectTools,
  findTools,
  hintedFlavour,
  installedFlavours,
  programName,
  type Tools,
} from '../kernel/iptables/flavour.ts';
import { createIptables } from '../kernel/iptables/iptables.ts';
import { ListeningSockets, localPorts, readTable, receiving } from '../kernel/local-ports.ts';
import { isTrusted, nodeHolder } from '../kernel/node-claim.ts';
import type { IpFamily } from '../model/address.ts';
import { IptablesError, type Table } from '../model/iptables.ts';
import type { ProxiedProtocol } from '../model/service-port.ts';
import { type ControlSocketFacts, checkControlSocket } from '../operate/check/control-socket.ts';
import { checkEngine } from '../operate/check/engine.ts';
import { checkFamilies } from '../operate/check/families.ts';
import { type Finding, fail } from '../operate/check/finding.ts';
import { FindingsLog } from '../operate/check/findings-log.ts';
import { checkFirewall, type FirewallFacts, nftInputChains } from '../operate/check/firewall.ts';
import { isThisProgram, type SocketPort } from '../operate/check/host-process.ts';
import { checkTools } from '../operate/check/iptables-tools.ts';
import { numberIn, type ReadFile } from '../operate/check/kernel-files.ts';
import { checkKernelRules } from '../operate/check/kernel-rules.ts';
import { checkKernelSettings, type ReuseFacts } from '../operate/check/kernel-settings.ts';
import { checkLeftovers } from '../operate/check/leftovers.ts';
import { checkBacklog, checkConntrack, checkDescriptors, checkMemory } from '../operate/check/limits.ts';
import { checkListenAddress } from '../operate/check/listen-addresses.ts';
import { checkNodePorts } from '../operate/check/node-ports.ts';
import { checkPrivileges } from '../operate/check/privileges.ts';
import { tryToBind } from '../operate/check/probes/bind.ts';
import { offerInEmptyNamespace } from '../operate/check/probes/empty-namespace.ts';
import { listenersOn, neighbours } from '../operate/check/probes/processes.ts';
import { checkProxyPorts } from '../operate/check/proxy-ports.ts';
import type { Check } from '../operate/check/run-checks.ts';
import { isServed } from '../operate/control/socket-file.ts';
import type { ListChain } from '../rules/explain-path.ts';
import { natProbeText } from '../rules/plan.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { messageOf } from '../util/text.ts';
import type { KnownServices } from './check-source.ts';
import { Ability, familiesOf } from './served-families.ts';
import { ThisNode } from './this-node.ts';

const EXEC_MS = 5_000;

/** Unless the environment names another (xtables' own `XTABLES_LOCKFILE`). */
const LOCK = '/run/xtables.lock';

const FAMILIES: readonly IpFamily[] = ['IPv4', 'IPv6'];
const TABLES: readonly Table[] = ['nat', 'filter'];
const PROTOCOLS: readonly ProxiedProtocol[] = ['TCP', 'UDP'];

const exec = createExec({ clock, timeoutMs: EXEC_MS });
const quiet = new FindingsLog('');

const read: ReadFile = (path) => {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
};

/** In the order in which one failure explains the next. */
export function machineChecks(config: Config, known: KnownServices): readonly Check[] {
  let tools: Tools | undefined;
  let families: readonly IpFamily[] = FAMILIES;
  const log = new FindingsLog('harmless if others reach that address from here');
  const node = new ThisNode(config, { name: '', log });
  return [
    { name: 'privileges', run: () => privileges(config) },
    {
      name: 'iptables',
      run: async () => {
        tools = config.iptablesMode === 'auto' ? await detectTools(exec) : await findTools(config.iptablesMode, exec);
        return checkTools({
          mode: config.iptablesMode,
          chosen: tools?.flavour,
          hinted: await hintedFlavour(exec),
          lock: xtablesLock(),
        });
      },
    },
    {
      name: 'families',
      run: async () => {
        if (tools === undefined) return [];
        const { findings, served } = await servedHere(config, node, tools);
        families = served;
        return [...findings, ...log.findings];
      },
    },
    {
      name: 'kernel rules',
      run: () => (tools === undefined ? [] : checkKernelRules(offerInEmptyNamespace(exec, tools), families)),
    },
    { name: 'kernel', run: () => checkKernelSettings(read, families, twReuse(config)) },
    { name: 'firewall', run: () => firewall(config, families, tools) },
    { name: 'other proxies', run: () => leftovers(tools) },
    { name: 'addresses', run: async () => [...(await listenAddresses(config)), ...(await controlSocket(config))] },
    { name: 'local ports', run: () => proxyPorts(config, known) },
    { name: 'NodePorts', run: () => nodePorts(node, families, known) },
    {
      name: 'limits',
      run: () => [
        ...checkDescriptors(read, config.dataPlane.udpMaxFlows),
        ...checkConntrack(read, { wanted: conntrackNumbers(config.host.conntrack, cpus().length), isWritable }),
        ...checkBacklog(read),
        ...checkMemory(read),
      ],
    },
    { name: 'engine', run: () => engine(config) },
  ];
}

function privileges({ healthzAddress, metricsAddress, proxyPortRange }: Config): readonly Finding[] {
  const ports = [healthzAddress?.port, metricsAddress?.port, proxyPortRange?.first].filter(
    (port) => port !== undefined,
  );
  return checkPrivileges(read('/proc/self/status') ?? '', {
    lowestPort: ports.length === 0 ? 0 : Math.min(...ports.filter((port) => port > 0)),
    unprivilegedFrom: numberIn(read, '/proc/sys/net/ipv4/ip_unprivileged_port_start'),
  });
}

function twReuse({ host }: Config): ReuseFacts {
  return { path: TW_REUSE, isWanted: host.tcpTwReuse, isWritable: isWritable(TW_REUSE) };
}

function xtablesLock() {
  const path = process.env['XTABLES_LOCKFILE'] ?? LOCK;
  return { path, isWritable: isWritable(path) || (read(path) === undefined && isWritable(dirname(path))) };
}

async function servedHere(
  { bindAddress, iptablesMode }: Config,
  node: ThisNode,
  tools: Tools,
): Promise<{ readonly findings: readonly Finding[]; readonly served: readonly IpFamily[] }> {
  try {
    const iptables = await createIptables({ flavour: iptablesMode, exec, log: quiet });
    const families = familiesOf(bindAddress);
    const address = (family: IpFamily) => node.address(family);
    const ability = new Ability({ families, address, probe: probeAside(tools), clock, log: quiet });
    const served = await ability.atStart();
    const other = families.find(({ family }) => !served.includes(family))?.family;
    // A node without an address of a family is mostly meant so; one whose rules cannot be had is not.
    const isMeant = other === undefined || address(other) === undefined;
    const findings = await checkFamilies({
      served: served.map((family) => ({ family, address: address(family) ?? bindAddress })),
      leftOut: isMeant ? undefined : await ability.whyNot(other),
      readRules: (family) => iptables.save(family, 'nat'),
    });
    return { findings, served };
  } catch (error) {
    return { findings: [withAdvice(messageOf(error))], served: FAMILIES };
  }
}

/** Whether the kernel has NAT of a family, as far as can be told without touching a rule of this machine. */
function probeAside(tools: Tools): (family: IpFamily) => Promise<void> {
  const offer = offerInEmptyNamespace(exec, tools);
  return async (family) => {
    const result = await offer(family, natProbeText(family));
    // "can't initialize ip6tables table `nat': Table does not exist" is how the legacy tools say it.
    if (result.outcome === 'refused' || (result.outcome === 'untold' && result.err.includes('does not exist'))) {
      throw new IptablesError('refused', result.err);
    }
  };
}

/** Of an error that says behind a semicolon what to do. */
function withAdvice(err: string): Finding {
  const at = err.lastIndexOf('; ');
  return at < 0 ? fail(err, 'see --bind-address') : fail(err.slice(0, at), err.slice(at + 2));
}

/** The kernel asks the rules of both flavours of iptables, and those of nft, and each of them can drop. */
async function firewall(
  { clusterCidrs, proxyPortRange }: Config,
  families: readonly IpFamily[],
  tools: Tools | undefined,
): Promise<readonly Finding[]> {
  const localPort = (proxyPortRange ?? localPorts().range).first;
  const looked: FirewallFacts[] = [];
  for (const flavour of (await installedFlavours(exec)).filter((each) => each !== tools?.flavour)) {
    const infix = (await findTools(flavour, exec))?.infix ?? '';
    const iptables = await createIptables({ flavour, exec, log: quiet });
    for (const family of families) {
      const list: ListChain = (table, chain) => iptables.list(family, table, chain);
      // That rules cannot be read is told by the check of families, and those of the other flavour may not be there.
      const isReadable = await list('filter', 'INPUT').then(Boolean, () => false);
      if (isReadable)
        looked.push({ family, program: programName(family, infix), clusterCidrs, localPort, list, clock });
    }
  }
  const chains = nftInputChains(await nft('list', 'chains'));
  const nftChains = await Promise.all(
    chains.map(async (name) => ({ name, text: await nft('list', 'chain', ...name.split(' ')) })),
  );
  return await checkFirewall(looked, nftChains);
}

/** What it prints; empty where there is no such program. */
async function nft(...args: readonly string[]): Promise<string> {
  const ended = await exec({ program: 'nft', args });
  return ended.outcome === 'exited' ? ended.stdout : '';
}

async function leftovers(tools: Tools | undefined): Promise<readonly Finding[]> {
  const flavours = await installedFlavours(exec);
  const holder = await nodeHolder();
  const dumps = [];
  for (const flavour of flavours) {
    const iptables = await createIptables({ flavour, exec, log: quiet });
    for (const family of FAMILIES) {
      for (const table of TABLES) {
        const text = await iptables.save(family, table).catch(() => undefined);
        dumps.push({ flavour, family, table, text });
      }
    }
  }
  return checkLeftovers({
    processes: neighbours(),
    serving: holder !== undefined && isTrusted(holder) ? holder : undefined,
    flavour: tools?.flavour,
    dumps,
    ipvs: read('/proc/net/ip_vs'),
    interfaces: interfaceNames(),
    nftTables: await nft('list', 'tables'),
  });
}

/** Those that are down or have no address, too. */
function interfaceNames(): readonly string[] {
  const table = read('/proc/net/dev') ?? '';
  return [...Object.keys(networkInterfaces()), ...[...table.matchAll(/^\s*([^\s:]+):/gm)].map(([, name = '']) => name)];
}

async function listenAddresses({
  healthzAddress,
  metricsAddress,
  bindAddressHardFail: isHard,
}: Config): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const [server, at] of Object.entries({ healthz: healthzAddress, metrics: metricsAddress })) {
    if (at !== undefined) findings.push(...(await checkListenAddress({ server, at, isHard, tryToBind })));
  }
  return findings;
}

async function controlSocket({ controlSocket: path }: Config): Promise<readonly Finding[]> {
  if (path === undefined) return [];
  const present = await presentAt(path);
  let folder = dirname(path);
  while (!existsSync(folder) && folder !== dirname(folder)) folder = dirname(folder);
  return checkControlSocket({ path, present, isWritable: isWritable(folder) });
}

async function presentAt(path: string): Promise<ControlSocketFacts['present']> {
  try {
    const stats = statSync(path, { throwIfNoEntry: false });
    if (stats === undefined) return 'nothing';
    if (!stats.isSocket()) return 'other';
    return (await isServed(path)) ? 'served' : 'socket';
  } catch {
    return 'hidden';
  }
}

async function proxyPorts({ proxyPortRange }: Config, { services }: KnownServices): Promise<readonly Finding[]> {
  // One that runs has the local ports already that are looked for.
  const isRunning = (await nodeHolder()) !== undefined || neighbours().some(isThisProgram);
  const taken = isRunning ? undefined : new Set(PROTOCOLS.flatMap((protocol) => [...portsInUse(protocol)]));
  return checkProxyPorts({
    chosen: proxyPortRange,
    kernel: localPorts(),
    taken,
    servicePorts: services.reduce((sum, service) => sum + service.ports.length, 0),
  });
}

function* portsInUse(protocol: ProxiedProtocol): Generator<number> {
  for (const file of [protocol.toLowerCase(), `${protocol.toLowerCase()}6`]) {
    for (const local of receiving(readTable(`/proc/net/${file}`, protocol), protocol)) {
      yield Number.parseInt(local.slice(local.lastIndexOf(':') + 1), 16);
    }
  }
}

function nodePorts(node: ThisNode, families: readonly IpFamily[], { services }: KnownServices): readonly Finding[] {
  const programs = new ListeningSockets(clock);
  const addresses = families.flatMap((family) => localAddresses(family));
  return checkNodePorts({
    services,
    addresses,
    nodePortAddresses: node.nodePortAddresses(families) ?? addresses,
    isListening: (address, port, protocol) => programs.isListening(address, port, protocol),
    taken: new Set(
      PROTOCOLS.flatMap((protocol) => [...portsInUse(protocol)].map((port): SocketPort => `${port}/${protocol}`)),
    ),
    holdersOf: listenersOn,
  });
}

function engine({ engine: wanted, workers = defaultWorkers() }: Config) {
  return checkEngine({
    engine: wanted,
    workers,
    cores: availableParallelism(),
    // Not before it is wanted: koffi's addon may not load here.
    selfCheck: async () => (await import('../sys/self-check.ts')).selfCheck(),
  });
}

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
