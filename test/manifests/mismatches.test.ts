import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_FILE, nextFileState } from '../../src/manifests/file-state.ts';
import { Mismatches } from '../../src/manifests/mismatches.ts';
import { NamedObjects } from '../../src/manifests/named-objects.ts';
import { readManifest } from '../../src/manifests/read-manifest.ts';
import { foundText } from '../../src/util/found.ts';

const PLAIN = { clusterIpFamilies: [], loopbackEndpoints: false };

const service = (name: string, ports: string, spec = 'clusterIP: 10.96.0.1') =>
  `{apiVersion: v1, kind: Service, metadata: {${name}}, spec: {${spec}, ports: [${ports}]}}`;

const endpoints = (name: string, ports: string) =>
  `{apiVersion: v1, kind: Endpoints, metadata: {${name}}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [${ports}]}]}`;

const slice = (name: string, ports: string) =>
  `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: ${name}, labels: {kubernetes.io/service-name: web}},
    addressType: IPv4, endpoints: [{addresses: [10.0.0.1]}], ports: [${ports}]}`;

const HTTP = '{name: http, port: 80}';
const WEB = '{name: web, port: 80}';

/** One file after the other in the place of the last one. */
class Edited {
  readonly #objects = new NamedObjects();
  readonly #mismatches = new Mismatches(this.#objects);
  #state = NO_FILE;

  /** What is said of objects that an edit concerns. */
  edit(...documents: string[]): string[] {
    const reader = readManifest(documents.join('\n---\n'), new Map(), PLAIN);
    let step = reader.next();
    while (!step.done) step = reader.next();
    const { state } = nextFileState('a.yaml', this.#state, step.value);
    this.#objects.replace(this.#state.objects, state.objects);
    this.#state = state;
    const changes = [...this.#objects.takeChanges(() => [])].map(([id, last]) => [id, last?.event] as const);
    return [...this.#mismatches.update(changes)].flatMap(([id, problem]) =>
      problem ? `${id}: ${foundText(problem)}` : [],
    );
  }
}

/** What is said of the objects of these documents. */
function said(...documents: string[]): string[] {
  return new Edited().edit(...documents);
}

test('endpoints that match their Service are fine; so is a Service without endpoints', () => {
  assert.deepEqual(said(service('name: web', WEB), endpoints('name: web', WEB), service('name: alone', WEB)), []);
  assert.deepEqual(said(service('name: web', '{port: 80}'), slice('web-1', '{port: 80}')), []);
});

test('endpoints whose port has another name or protocol are told which the Service waits for', () => {
  assert.deepEqual(said(service('name: web', WEB), endpoints('name: web', '{port: 8080}')), [
    'Endpoints "default/web": its port without a name (TCP) is not in Service "default/web", which waits for ' +
      '"web" (TCP); write the same name and protocol in both',
  ]);
  assert.deepEqual(said(service('name: web', WEB), slice('web-1', '{name: web, protocol: UDP, port: 80}')), [
    'EndpointSlice "default/web-1": its port "web" (UDP) is not in Service "default/web", which waits for ' +
      '"web" (TCP); write the same name and protocol in both',
  ]);
});

test('ports are fine when the Service has less, or when its slices have them together', () => {
  assert.deepEqual(said(service('name: web', WEB), endpoints('name: web', `${WEB}, ${HTTP}`)), []);
  assert.deepEqual(said(service('name: web', `${WEB}, {name: http, port: 81}`), endpoints('name: web', WEB)), []);
  const both = service('name: web', `${WEB}, {name: http, port: 81}`);
  assert.deepEqual(said(both, slice('web-1', WEB), slice('web-2', `${HTTP}, {name: more, port: 1}`)), []);
});

test('endpoints without a Service are told so, and where there is one of this name', () => {
  assert.deepEqual(said(endpoints('name: web, namespace: a', WEB), slice('web-1', WEB)), [
    'Endpoints "a/web": there is no Service "a/web"; write one, or remove this object',
    'EndpointSlice "default/web-1": there is no Service "default/web"; write one, or remove this object',
  ]);
  assert.deepEqual(said(service('name: web', WEB), endpoints('name: web, namespace: a', WEB)), [
    'Endpoints "a/web": there is no Service "a/web", but "default/web"; write the same namespace in both',
  ]);
});

test('endpoints of a Service that is headless or not valid are fine: there is nothing to do about them', () => {
  assert.deepEqual(said(service('name: web', WEB, 'clusterIP: None'), endpoints('name: web', HTTP)), []);
  assert.deepEqual(said(service('name: web', WEB, 'clusterIP: nonsense'), endpoints('name: web', HTTP)), []);
});

test('an edit says something of what it concerns only, also of endpoints that were written before', () => {
  const file = new Edited();
  const [web, other] = [service('name: web', WEB), service('name: other', WEB)];
  const lost = slice('web-1', WEB);
  const missing = 'EndpointSlice "default/web-1": there is no Service "default/web"';
  assert.deepEqual(file.edit(lost), [`${missing}; write one, or remove this object`]);
  assert.deepEqual(file.edit(lost, other), [], 'a Service of another name');
  const elsewhere = service('name: web, namespace: a', WEB);
  const advice = `${missing}, but "a/web"; write the same namespace in both`;
  assert.deepEqual(file.edit(lost, other, elsewhere), [advice]);
  assert.deepEqual(file.edit(lost, other), [`${missing}; write one, or remove this object`], 'it has gone again');
  assert.deepEqual(file.edit(lost, other, service('name: web', WEB, 'clusterIP: nonsense')), []);
  assert.deepEqual(file.edit(lost, other, web), []);
  assert.match(String(file.edit(lost.replace(WEB, HTTP), other, web)), /waits for "web" \(TCP\)/);
  assert.deepEqual(file.edit(lost.replace('service-name: web', 'service-name: other'), web, other), []);
  assert.deepEqual(file.edit(web), [], 'other and the slice have gone');
  assert.deepEqual(file.edit(web, lost.replace('service-name: web', 'service-name: new')).length, 1);
});
