import { UsageError } from '../config/usage-error.ts';
import { type Address, parseAddress } from '../model/address.ts';
import { type Endpoint, endpointName } from '../model/endpoint.ts';
import type { ServicePortName } from '../model/service.ts';
import type { ServiceFilter, ServiceView } from '../model/view.ts';
import type { Control } from '../operate/control/protocol.ts';
import { suggest } from '../util/suggest.ts';
import { listed } from '../util/text.ts';
import { isSelected, type Selection, selectionOf } from './list/selection.ts';
import { askOne, parseEndpoint, servicesOf } from './shared.ts';

/* Names that users type: what they mean, what they may have meant, and what a shell offers. */

const SHOWN = 3;

async function namesOf(control: Control): Promise<readonly ServicePortName[]> {
  const names = new Set<ServicePortName>();
  for await (const { name } of servicesOf(control, { summary: true })) names.add(name);
  return [...names];
}

/** Why nothing was found, and what is there instead: a sentence without its end. */
export async function noMatch({ filter, port }: Selection, control: Control): Promise<string> {
  const { namespace, service } = filter;
  const text = `${[namespace, service].filter((part) => part !== undefined).join('/')}${port === undefined ? '' : `:${port}`}`;
  const names = await namesOf(control);
  const keys = [...new Set(names.map((name) => name.split(':', 1)[0] as string))];
  const near = nearest({ namespace, service, port }, names, keys);
  const advice = near.length > 0 ? `did you mean ${listed(near, SHOWN)}?` : 'see kube-userspace-proxy list';
  return `this node serves no Service ${JSON.stringify(text)}; ${advice}`;
}

function nearest(
  {
    namespace,
    service,
    port,
  }: { readonly namespace?: string | undefined; service?: string | undefined; port?: string | undefined },
  names: readonly ServicePortName[],
  keys: readonly string[],
): readonly string[] {
  // Its ports, if only that is wrong.
  if (port !== undefined && keys.includes(`${namespace}/${service}`)) {
    return names.filter((name) => name.startsWith(`${namespace}/${service}:`));
  }
  const wanted = service ?? namespace ?? '';
  const sameName = keys.filter((key) => key.endsWith(`/${wanted}`));
  if (sameName.length > 0) return sameName;
  const within = service === undefined ? [] : keys.filter((key) => namespace === undefined || isIn(key, namespace));
  const meant =
    service === undefined
      ? suggest(wanted, [...new Set(keys.map((key) => key.slice(0, key.indexOf('/'))))])
      : within.find((key) => serviceIn(key) === suggest(service, within.map(serviceIn)));
  return meant === undefined ? [] : [meant];
}

function isIn(key: string, namespace: string): boolean {
  return key.startsWith(`${namespace}/`);
}

function serviceIn(key: string): string {
  return key.slice(key.indexOf('/') + 1);
}

/**
 * The endpoints that are meant by `IP:PORT`, by an address alone, or by `NAMESPACE/SERVICE[:PORT]`. Rejects with a
 * sentence when there are none.
 */
export async function endpointsOf(text: string, control: Control, forced = false): Promise<readonly Endpoint[]> {
  if (text.includes('/')) {
    const selection = selectionOf({ argument: text });
    const found = await endpointsWhere(control, selection.filter, (service) => isSelected(selection, service));
    if (found === undefined) throw new UsageError(await noMatch(selection, control));
    if (found.length === 0) throw new UsageError(`${JSON.stringify(text)} has no endpoints`);
    return found;
  }
  const address = parseAddress(text.replace(/^\[(.*)\]$/, '$1'));
  if (address === undefined) return [parseEndpoint(text)];
  const found = (await endpointsWhere(control, {}))?.filter((each) => each.address === address) ?? [];
  const drained = await drainedAt(address, control);
  const all = new Map([...found, ...drained].map((each) => [endpointName(each), each]));
  if (all.size === 0) {
    const advice = forced ? `; --force needs a port: ${endpointName({ address, port: 8080 })}, for example` : '';
    throw new UsageError(`no Service has an endpoint at ${address}${advice}`);
  }
  return [...all.values()];
}

/** Without duplicates; `undefined` when no Service matches. */
async function endpointsWhere(
  control: Control,
  filter: ServiceFilter,
  isWanted: (service: ServiceView) => boolean = () => true,
): Promise<readonly Endpoint[] | undefined> {
  const found = new Map<string, Endpoint>();
  let isKnown = false;
  for await (const service of servicesOf(control, filter)) {
    if (!isWanted(service)) continue;
    isKnown = true;
    for (const { endpoint } of service.listeners.flatMap(({ endpoints }) => endpoints)) {
      found.set(endpointName(endpoint), endpoint);
    }
  }
  return isKnown ? [...found.values()] : undefined;
}

/** Also those that no Service has. */
async function drainedAt(address: Address, control: Control): Promise<readonly Endpoint[]> {
  const { drained } = await askOne(control, 'node', {});
  return drained.map(parseEndpoint).filter((each) => each.address === address);
}

/** What the argument of a command names. */
export type Completed = 'namespaces' | 'services' | 'endpoints';

/** What a shell offers for what is `typed`: the ports of a Service only behind its colon. */
export async function completions(
  kinds: readonly Completed[],
  typed: string,
  control: Control,
): Promise<readonly string[]> {
  const offered = new Set<string>();
  const withPorts = /\/.*:/.test(typed);
  for await (const service of servicesOf(control, { summary: !kinds.includes('endpoints') })) {
    const { name, namespace, port, listeners } = service;
    const [key = '', portName = port] = name.split(':', 2);
    if (kinds.includes('namespaces')) offered.add(namespace);
    if (kinds.includes('services')) offered.add(withPorts ? `${key}:${portName}` : key);
    if (!kinds.includes('endpoints')) continue;
    for (const { endpoint } of listeners.flatMap(({ endpoints }) => endpoints)) offered.add(endpointName(endpoint));
  }
  return [...offered].filter((each) => each.startsWith(typed)).sort();
}
