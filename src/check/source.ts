import { claimName } from '../capture/claims.ts';
import type { Config, KubernetesConfig, ManifestsConfig } from '../config/config.ts';
import { PROGRAM } from '../config/version.ts';
import { allLocalAddresses } from '../kernel/addresses.ts';
import { readPage } from '../kubernetes/answers.ts';
import type { ApiClient } from '../kubernetes/api-client.ts';
import { ApiError, isForeign } from '../kubernetes/api-error.ts';
import { askWhichCluster } from '../kubernetes/cluster.ts';
import { withinSilence } from '../kubernetes/http-exchange.ts';
import { resourceOf } from '../kubernetes/kubernetes-source.ts';
import { nodeName } from '../kubernetes/node.ts';
import { ObjectStore } from '../kubernetes/object-store.ts';
import { decodeSaved } from '../kubernetes/objects/kubernetes-object.ts';
import { createApiServers } from '../kubernetes/open-access.ts';
import { ManifestSource } from '../manifests/manifest-source.ts';
import { type Address, type Cidr, cidrMatcher, type IpFamily } from '../model/address.ts';
import { findingText, goesWithout } from '../model/finding.ts';
import { partsOf, type Service, type ServiceKey, type ServicePortName } from '../model/service.ts';
import { DESTINATION_KINDS, destinations, heldBy, type ServicePort } from '../model/service-port.ts';
import { idOf, type SourceEvent } from '../model/source.ts';
import type { NoEndpoints } from '../model/view.ts';
import { refusedOptions } from '../services/derive-service-ports.ts';
import { endpointAddresses } from '../services/known-addresses.ts';
import { ServiceTracker, type ServiceTrackerOptions } from '../services/service-tracker.ts';
import type { SavedState } from '../state/state-file.ts';
import type { Clock } from '../util/clock.ts';
import { formatDuration } from '../util/duration.ts';
import { counted, messageOf } from '../util/text.ts';
import { rfc3339 } from '../util/timestamp.ts';
import { withDeadline } from '../util/wait.ts';
import { checkExternalIPs } from './external-ips.ts';
import { type Finding, FindingsLog, fail, ok, warn } from './finding.ts';
import { type Api, checkPermissions, UNWELL } from './permissions.ts';
import type { Check } from './run-checks.ts';
import { checkState } from './state.ts';

/** The Services that the checks of the source have found, for the checks of ports. */
export interface KnownServices {
  services: readonly Service[];
}

/** A file that changes all the time delays the first reading by five seconds. */
const MANIFESTS_MS = 10_000;

/** For one request to the API server, the time of an exec plugin included. */
export const REQUEST_MS = 5_000;

const PAGE_SIZE = 500;
/** Against a server whose list never ends. */
const MAX_PAGES = 200;
/** No further page is requested after this time. */
const SERVICES_MS = 5_000;
/** A cluster may have thousands of invalid Services. */
const SHOWN = 5;

/** `families`: those that this node can have. */
export function sourceChecks(
  { source, state, hostnameOverride, externalIpAllowList, waitForEndpointsMs }: Config,
  known: KnownServices,
  families: readonly IpFamily[],
  clock: Clock,
): readonly Check[] {
  const node = nodeName(hostnameOverride);
  let saved: SavedState | undefined;
  const ofState: Check = {
    name: 'state',
    run: async () => {
      if (state === undefined) return [];
      const checked = await checkState(state, { node, source: source.kind }, clock);
      saved = checked.saved;
      return checked.findings;
    },
  };
  if (source.kind === 'manifests') {
    const allowed = externalIpAllowList === undefined ? {} : { allowedExternalIPs: externalIpAllowList };
    const policy = { ...allowed, waitForEndpointsMs };
    const run = () => checkManifests(source, { known, families, policy, saved, clock });
    return [ofState, { name: 'manifests', run }];
  }
  let api: Api | undefined;
  /** Runs nothing after a failure, because the same reason would be reported again. */
  const whileUsable = (run: (api: Api) => Promise<readonly Finding[]>) => async () => {
    if (api === undefined) return [];
    const findings = await run(api);
    if (findings.some(({ level }) => level === 'fail')) api = undefined;
    return findings;
  };
  return [
    ofState,
    {
      name: 'API server',
      run: async () => {
        const connected = await checkApiServer(source, saved, clock);
        api = connected.api;
        if (api === undefined && saved !== undefined) known.services = servicesOf(saved);
        return connected.findings;
      },
    },
    { name: 'permissions', run: whileUsable((usable) => checkPermissions(usable, node)) },
    {
      name: 'Services',
      run: whileUsable(async (usable) => {
        const { services, findings } = await listServices(usable, clock);
        known.services = services;
        return findings;
      }),
    },
    {
      name: 'external IPs',
      run: whileUsable(async () => checkExternalIPs(externalIpAllowList, known.services)),
    },
  ];
}

/** What the flags say about Services. */
type ServicePolicy = Omit<ServiceTrackerOptions, 'servedFamilies'>;

interface ManifestsCheck {
  readonly known: KnownServices;
  readonly families: readonly IpFamily[];
  readonly policy: ServicePolicy;
  readonly saved: SavedState | undefined;
  readonly clock: Clock;
}

async function checkManifests(
  config: ManifestsConfig,
  { known, families, policy, saved, clock }: ManifestsCheck,
): Promise<readonly Finding[]> {
  const log = new FindingsLog('correct the file', { ofInfo: 'nothing, if they are for other programs' });
  const source = new ManifestSource({ ...config, ...(saved && { saved: saved.objects }), clock, log });
  const objects = new Map<string, SourceEvent>();
  const apply = (events: readonly SourceEvent[]) => {
    for (const event of events) objects.set(idOf(event), event);
  };
  try {
    const synced = new Promise<void>((resolve, reject) => {
      source.start({ apply, synced: resolve }).catch(reject);
    });
    await withDeadline(synced, { clock, ms: MANIFESTS_MS, late: `not read within ${MANIFESTS_MS / 1_000} s` });
  } catch (error) {
    return [...log.findings, fail(messageOf(error), 'correct --manifests')];
  } finally {
    await source.stop();
  }
  known.services = [...objects.values()].flatMap((event) => (event.kind === 'Service' ? (event.value ?? []) : []));
  const size = `${sizeOf(known.services)} in ${config.paths.join(', ')}`;
  const isServed = known.services.some(hasServedPort);
  const leftOut = families.flatMap((family) => [
    ...whatIsLeftOut([...objects.values()], { family, families, policy }, (key) => source.placeOf(`Service "${key}"`)),
  ]);
  const lost = new Set([...source.unusable()].flatMap(({ usable, place }) => (usable.length === 0 ? place : [])));
  const isKept = ({ place = '' }: Finding) => saved !== undefined && !lost.has(place);
  const faults = log.findings.map((finding) => (isKept(finding) ? warnOnly(finding) : finding));
  // What holds for both families of a Service is said once.
  const distinct = new Map(leftOut.map((finding) => [findingText(finding), finding]));
  // Causes come before what follows from them.
  return [
    ...(isServed ? [ok(size)] : []),
    ...faults,
    ...checkClusterIpRanges(config.clusterIpRanges, [...objects.values()], allLocalAddresses()),
    ...distinct.values(),
    ...(isServed ? [] : [fail(`nothing to serve: ${size}`, NOTHING_TO_SERVE)]),
  ];
}

/** Of nothing that another finding names already. */
const WITHOUT_ENDPOINTS: Readonly<Partial<Record<NoEndpoints['reason'], string>>> = {
  NoObjects: 'write Endpoints of the same name and namespace',
  NoAddresses: 'write addresses into its Endpoints',
  OtherFamily: 'add endpoints of that family, or give the Service an address of the family of its endpoints',
};

interface Serving {
  readonly family: IpFamily;
  readonly families: readonly IpFamily[];
  readonly policy: ServicePolicy;
}

/** What a run with these objects would leave out, as the tracker of a run says it. */
function* whatIsLeftOut(
  objects: readonly SourceEvent[],
  { family, families, policy }: Serving,
  placeOf: (service: ServiceKey) => string | undefined,
): Generator<Finding> {
  const tracker = new ServiceTracker(family, { ...policy, servedFamilies: () => families });
  tracker.apply(objects);
  const { upserted, unserved, refused } = tracker.takeDelta();
  const about = (subject: ServicePortName, found: Omit<Finding, 'level' | 'subject'>): Finding => {
    const { namespace, service } = partsOf(subject);
    const place = placeOf(`${namespace}/${service}`);
    return { level: 'warn', subject, ...found, ...(place !== undefined && { place }) };
  };
  for (const { name, found, advice } of unserved) {
    yield about(name, { found: `is not served: ${found}`, ...(advice !== undefined && { advice }) });
  }
  for (const part of refused) yield about(part.name, goesWithout([part]));
  for (const { owner, what, holder } of conflicts(upserted)) {
    const { place } = about(holder, { found: '' });
    const reason = heldBy(place === undefined ? holder : `${holder} (${place})`);
    yield about(owner, goesWithout([{ what, ...reason }]));
  }
  for (const { name, waitMs } of upserted) {
    const { reason, message } = tracker.noEndpoints(name, 'own') ?? {};
    const advice = reason && WITHOUT_ENDPOINTS[reason];
    const becomes =
      waitMs === undefined ? 'refuses its clients' : `has its clients wait up to ${formatDuration(waitMs)}`;
    if (advice !== undefined) yield about(name, { found: `${becomes}: ${message}`, advice });
  }
}

/** The strongest claim to an address and port has it; of equal ones, the first by name has it in a run that begins. */
function* conflicts(ports: readonly ServicePort[]) {
  const holders = new Map<string, ServicePortName>();
  const claims = ports.flatMap((port) =>
    destinations(port).map((to) => ({ rank: DESTINATION_KINDS.indexOf(to.kind), owner: port.name, to, port })),
  );
  claims.sort((a, b) => a.rank - b.rank || (a.owner < b.owner ? -1 : 1));
  for (const { owner, to, port } of claims) {
    const what = claimName(to, port.protocol);
    const holder = holders.get(what) ?? owner;
    holders.set(what, holder);
    if (holder !== owner) yield { owner, what, holder };
  }
}

/** A cluster IP must not be in use elsewhere: its clients would reach the Service in place of that machine or pod. */
export function checkClusterIpRanges(
  ranges: readonly Cidr[],
  objects: readonly SourceEvent[],
  localAddresses: readonly Address[],
): readonly Finding[] {
  const isWithin = cidrMatcher(ranges);
  const endpoints = objects.flatMap((event) =>
    event.kind === 'Service' || event.value === undefined ? [] : [...endpointAddresses(event.value)],
  );
  const found = (who: string, addresses: readonly Address[]) => {
    const address = addresses.find(isWithin);
    if (address === undefined) return [];
    return [warn(`${who} ${address} lies in --service-cluster-ip-range`, 'give a range that nothing else uses')];
  };
  return [...found('the endpoint', endpoints), ...found("this machine's address", localAddresses)];
}

const NOTHING_TO_SERVE = 'write a Service with a port over TCP or UDP, and a clusterIP or type: NodePort';

/** Whether clients can reach a port of it, by an address of its own or a NodePort. */
function hasServedPort({ ports, clusterIPs, externalIPs, loadBalancerIPs }: Service): boolean {
  const hasAddress = [clusterIPs, externalIPs, loadBalancerIPs].some(({ length }) => length > 0);
  return ports.some(({ protocol, nodePort }) => protocol !== 'SCTP' && (hasAddress || nodePort !== 0));
}

function sizeOf(services: readonly Service[]): string {
  const ports = services.reduce((sum, service) => sum + service.ports.length, 0);
  return `${counted(services.length, 'Service')} with ${counted(ports, 'port')}`;
}

/** `api` is absent when further requests would fail. */
async function checkApiServer(
  source: KubernetesConfig,
  saved: Pick<SavedState, 'knownAt'> | undefined,
  clock: Clock,
): Promise<{ readonly findings: readonly Finding[]; readonly api?: Api }> {
  const log = new FindingsLog('correct the kubeconfig');
  const origin = source.kubeconfig ?? (source.master === undefined ? "the Pod's service account" : '--master');
  try {
    const metrics = { requestDone: () => {} };
    const means = { userAgent: PROGRAM, env: process.env, clock, random: Math.random, log, metrics };
    const { clients } = await createApiServers({ ...source, ...means });
    const late = new ApiError('unreachable', `no answer within ${REQUEST_MS / 1_000} s`);
    const deadline = { clock, ms: REQUEST_MS, late };
    const apiOf = (client: ApiClient): Api => ({
      get: (path) => withinSilence(deadline, (signal) => client.get(path, signal)),
      post: (path, body) => withinSilence(deadline, (signal) => client.post(path, body, signal)),
    });
    if (clients.length > 1) {
      const { findings, usable } = await checkSeveral(clients, { apiOf, origin, clock });
      const whole = usable === undefined ? findings.map((each) => withState(each, saved)) : findings;
      return { findings: [...log.findings, ...whole], ...(usable && { api: apiOf(usable) }) };
    }
    const [client] = clients as [ApiClient];
    const api = apiOf(client);
    const finding = await checkVersion(api, client, origin);
    return { findings: [...log.findings, withState(finding, saved)], ...(finding.level !== 'fail' && { api }) };
  } catch (error) {
    const advice = `correct ${origin}, or start the proxy with --kubeconfig or --manifests`;
    return { findings: [...log.findings, fail(messageOf(error), advice)] };
  }
}

/** A start without the API server serves the state, if there is one. */
function withState(finding: Finding, saved: Pick<SavedState, 'knownAt'> | undefined): Finding {
  if (finding.level !== 'fail' || saved === undefined) return finding;
  return { ...warnOnly(finding), found: `${finding.found}; a start serves the state of ${rfc3339(saved.knownAt)}` };
}

function warnOnly(finding: Finding): Finding {
  return finding.level === 'fail' ? { ...finding, level: 'warn' } : finding;
}

/** Of a state of the API server. Throws `UnusableState`. */
function servicesOf({ objects }: SavedState): readonly Service[] {
  return [...objects].flatMap(({ object }) => {
    const event = decodeSaved(object);
    return event?.kind === 'Service' ? event.value : [];
  });
}

/** One that cannot be used is a warning where another can. All are asked at once. */
async function checkSeveral(
  clients: readonly ApiClient[],
  {
    apiOf,
    origin,
    clock,
  }: { readonly apiOf: (client: ApiClient) => Api; readonly origin: string; readonly clock: Clock },
): Promise<{ readonly findings: readonly Finding[]; readonly usable: ApiClient | undefined }> {
  const answers = await Promise.all(
    clients.map(async (client) => {
      const finding = await checkVersion(apiOf(client), client, origin);
      const cluster = finding.level === 'fail' ? undefined : await clusterOf(client, clock);
      return { client, finding, cluster };
    }),
  );
  const first = answers.find(({ cluster }) => cluster?.uid !== undefined);
  const found = answers.map(({ client, finding, cluster }): Finding => {
    if (cluster === undefined) return finding;
    if (cluster.uid === undefined) return fail(`${client.name} does not say its cluster: ${cluster.err}`, UNWELL);
    if (cluster.uid === first?.cluster?.uid) return finding;
    const other = `${client.name} is of another cluster than ${first?.client.name}, and is left out`;
    return fail(other, 'correct --api-servers: the first one that answers decides');
  });
  const findings = found.map((each) => (first === undefined ? each : warnOnly(each)));
  return { findings, usable: first?.client };
}

async function clusterOf(client: ApiClient, clock: Clock): Promise<{ readonly uid?: string; readonly err?: string }> {
  try {
    return { uid: await askWhichCluster(client, { clock, signal: new AbortController().signal }) };
  } catch (error) {
    return { err: messageOf(error) };
  }
}

async function checkVersion(api: Api, { host, name }: ApiClient, origin: string): Promise<Finding> {
  try {
    const { gitVersion } = ((await api.get('/version')) ?? {}) as { readonly gitVersion?: unknown };
    return ok(`${name} answers${typeof gitVersion === 'string' ? `, Kubernetes ${gitVersion.slice(0, 60)}` : ''}`);
  } catch (error) {
    const status = error instanceof ApiError ? error.status : undefined;
    const said = messageOf(error);
    if (status === 401) {
      const advice = `they may have expired or belong to another cluster; replace them in ${origin}`;
      return fail(`${name} does not accept the credentials (HTTP 401)`, advice);
    }
    if (status === undefined || isForeign(error)) {
      const [, advice = ''] = ADVICE.find(([pattern]) => pattern.test(said)) ?? [];
      const why = said.startsWith(`${host}: `) ? said.slice(host.length + 2) : said;
      return fail(`the API server ${name} cannot be used: ${why}`, `${advice} (${origin})`);
    }
    return status >= 500 ? warn(`${name} answers with ${said}`, UNWELL) : ok(`${name} answers with ${said}`);
  }
}

/** Advice by the message of the client. The first match counts. */
const ADVICE: readonly (readonly [RegExp, string])[] = [
  [/ECONNREFUSED/, 'start the API server, or correct its address'],
  [/ENOTFOUND|EAI_AGAIN/, 'check its name and /etc/resolv.conf, or name it by its address'],
  [
    /ETIMEDOUT|UNREACH|no (?:answer|connection)/,
    'check its address, routes and firewalls; a ClusterIP needs a running proxy',
  ],
  [/certificate/i, "check the certificates, tls-server-name and this machine's clock"],
  [/./, 'check that its port, http:// or https://, and HTTPS_PROXY are right'],
];

/** Reads the Services of a cluster page by page, and validates them with the code of a run. */
export async function listServices(
  api: Pick<Api, 'get'>,
  clock: Clock,
): Promise<{ readonly services: readonly Service[]; readonly findings: readonly Finding[] }> {
  const resource = resourceOf('Service');
  const log = new FindingsLog('correct the Service');
  const list = new ObjectStore(resource, log, clock).beginList();
  const dueAt = clock.now() + SERVICES_MS;
  let failure: unknown;
  let next = '';
  try {
    for (let pages = 0; pages === 0 || next !== ''; pages++) {
      if (pages === MAX_PAGES) throw new Error(`there are more than ${MAX_PAGES * PAGE_SIZE}`);
      if (clock.now() >= dueAt) throw new Error(`it takes longer than ${SERVICES_MS / 1_000} s`);
      const query = { limit: `${PAGE_SIZE}`, ...(next !== '' && { continue: next }), ...resource.selectors };
      const page = readPage(await api.get(`${resource.path}?${new URLSearchParams(query)}`));
      for (const item of page.items) list.add(item);
      next = page.next;
    }
  } catch (error) {
    failure = error;
  }
  const changes = list.finish();
  const objects = changes === 'unconfirmed' ? [] : changes;
  const services = objects.flatMap(({ value }) => (value?.kind === 'Service' ? value.value : []));
  const size = sizeOf(services);
  let summary = ok(size);
  if (failure instanceof ApiError && failure.status !== undefined && services.length === 0) {
    summary = fail(`Services cannot be listed: ${failure.message}`, UNWELL);
  } else if (failure !== undefined) {
    const found = `${size}, but not all of them: ${messageOf(failure)}`;
    summary = warn(found, `the checks of ports know only these; ${UNWELL}`);
  }
  const refused = services.flatMap(refusedOptions).map((part): Finding => {
    return { level: 'warn', subject: `Service "${part.name}"`, ...goesWithout([part]) };
  });
  // A user with an invalid Service must not make the whole check fail.
  const invalid = [...log.findings.map((finding): Finding => ({ ...finding, level: 'warn' })), ...refused];
  if (invalid.length <= SHOWN) return { services, findings: [summary, ...invalid] };
  const more = warn(
    `${counted(invalid.length - SHOWN, 'more fault')} in other Services`,
    'the log of the proxy names all of them',
  );
  return { services, findings: [summary, ...invalid.slice(0, SHOWN), more] };
}
