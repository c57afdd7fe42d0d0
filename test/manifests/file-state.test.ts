import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type FileState, NO_FILE, nextFileState } from '../../src/manifests/file-state.ts';
import { type Reading, readManifest } from '../../src/manifests/read-manifest.ts';
import { plainFields } from '../../src/util/log.ts';

const PLAIN = { clusterIpFamilies: [], loopbackEndpoints: false };

const service = (name: string, clusterIP = '10.96.0.1', port = 80) =>
  `{apiVersion: v1, kind: Service, metadata: {name: ${name}}, spec: {clusterIP: ${clusterIP}, ports: [{port: ${port}}]}}\n`;

const file = (...documents: string[]) => documents.join('---\n');

function read(text: string): Reading {
  const reader = readManifest(text, new Map(), PLAIN);
  for (;;) {
    const step = reader.next();
    if (step.done) return step.value;
  }
}

/** One file through its readings. */
class Subject {
  state: FileState = NO_FILE;

  /** The reports of this reading, as `level: message | document:line field err`. */
  reads(text: string): string[] {
    return this.takes(read(text));
  }

  takes(reading: Reading): string[] {
    const { state, reports } = nextFileState('f.yaml', this.state, reading);
    this.state = state;
    return reports.map(({ level, message, fields: given }) => {
      const fields = plainFields(given);
      assert.equal(fields['file'], 'f.yaml');
      const place = fields['document'] === undefined ? '' : ` ${fields['document']}:${fields['line']}`;
      const what = [fields['field'], fields['err']].filter((part) => part !== undefined && part !== '').join(' ');
      return `${level}: ${message} |${place} ${what}`.trim();
    });
  }

  /** `name=clusterIP` of every Service that is served. */
  get serves(): string[] {
    return this.state.objects
      .flatMap(({ event }) =>
        event?.kind === 'Service' && event.value !== undefined ? [`${event.key}=${event.value.clusterIPs}`] : [],
      )
      .map((text) => text.replace('default/', '').replace('10.96.0.', ''))
      .sort();
  }
}

test('a bad object is reported with document, line and field, and the others are served', () => {
  const subject = new Subject();
  assert.deepEqual(subject.reads(file(service('a'), service('b', 'nonsense'), service('c'))), [
    'error: Service "default/b" is not valid; it is left out | 2:3 spec.clusterIP is "nonsense"; expected an IP address',
  ]);
  assert.deepEqual(subject.serves, ['a=1', 'c=1']);
});

test('a bad object keeps its last good state until it is valid again', () => {
  const subject = new Subject();
  subject.reads(file(service('a'), service('b')));
  assert.deepEqual(subject.reads(file(service('a', '10.96.0.2'), service('b', '10.96.0.2', 0))), [
    'error: Service "default/b" is not valid; its last good state is kept | ' +
      '2:3 spec.ports[0].port is 0; expected an integer from 1 to 65535',
  ]);
  assert.deepEqual(subject.serves, ['a=2', 'b=1']);
  assert.deepEqual(subject.reads(file(service('a', '10.96.0.2'), service('b', '10.96.0.3'))), [
    'info: Service "default/b" is valid again |',
  ]);
  assert.deepEqual(subject.serves, ['a=2', 'b=3']);
  subject.reads(file(service('a'), service('b', 'bad')));
  assert.deepEqual(subject.reads(file(service('a'))), [], 'it is removed');
  assert.deepEqual(subject.serves, ['a=1']);
});

test('the same fault is reported once, wherever the document has moved; another one is new', () => {
  const subject = new Subject();
  subject.reads(file(service('b', 'bad')));
  assert.deepEqual(subject.reads(file(service('a'), '# moved\n', service('b', 'bad'))), []);
  assert.equal(subject.reads(file(service('a'), service('b', 'worse'))).length, 1);
});

test('a file that does not parse is reported once per fault and keeps everything', () => {
  const subject = new Subject();
  subject.reads(file(service('a'), service('b')));
  const [report, ...others] = subject.reads(file(service('a', '10.96.0.9'), 'x: [\n', service('b')));
  assert.match(report ?? '', /^error: A manifest file cannot be used; its last good state is kept \| 2:\d /);
  assert.deepEqual(others, []);
  assert.deepEqual(subject.serves, ['a=1', 'b=1']);
  assert.deepEqual(subject.reads(file(service('a', '10.96.0.9'), 'x: [\n', service('b'))), []);
  assert.equal(subject.reads(file(service('a', '10.96.0.8'), '\nx: [\n', service('b'))).length, 1);
  assert.deepEqual(subject.reads(service('b')), ['info: A manifest file is valid again |']);
  assert.deepEqual(subject.serves, ['b=1']);
});

test('a file that never could be used does not claim to have a last good state', () => {
  const subject = new Subject();
  assert.match(subject.reads('x: [\n')[0] ?? '', /^error: A manifest file cannot be used; nothing of it is served \| /);
});

test('faults of objects that stand while the file is broken are not reported anew', () => {
  const subject = new Subject();
  subject.reads(service('a', 'bad'));
  subject.takes({ status: 'unusable', err: { found: 'it is larger than 64 MiB' } });
  assert.deepEqual(subject.reads(service('a', 'bad')), ['info: A manifest file is valid again |']);
});

test('while a document does not say which object it is, nothing of the file is removed', () => {
  const subject = new Subject();
  subject.reads(file(service('a'), service('b'), service('c')));
  const nameless = service('b').replace('name: b', 'name: B!');
  assert.deepEqual(subject.reads(file(service('a', '10.96.0.2'), nameless)), [
    'error: A manifest does not say which object it is; until it does, no object of its file is removed | ' +
      '2:3 metadata.name is "B!"; expected a DNS label: at most 63 of a-z, 0-9 and "-", with a letter or digit at both ends',
  ]);
  assert.deepEqual(subject.serves, ['a=2', 'b=1', 'c=1']);
  assert.deepEqual(subject.reads(file(service('a', '10.96.0.2'), service('b', '10.96.0.3'))), [
    'info: A manifest file is valid again |',
  ]);
  assert.deepEqual(subject.serves, ['a=2', 'b=3']);
});

test('an object that is no longer to be served is there without a value', () => {
  const subject = new Subject();
  subject.reads(service('a'));
  subject.reads(service('a', 'None'));
  const [object] = subject.state.objects;
  assert.deepEqual(object?.event, { kind: 'Service', key: 'default/a', value: undefined });
});

test('an object that is in the file twice counts once, the first valid one, with a warning', () => {
  const subject = new Subject();
  assert.deepEqual(subject.reads(file(service('a'), service('a', '10.96.0.2'))), [
    'warn: Service "default/a" is in a manifest file twice; the first one counts | 2:3',
  ]);
  assert.deepEqual(subject.serves, ['a=1']);
  subject.reads(file(service('a', 'bad'), service('a', '10.96.0.2')));
  assert.deepEqual(subject.serves, ['a=2']);
  assert.deepEqual(new Subject().reads(`{kind: List, items: [${service('a')}, ${service('b')}, ${service('a')}]}\n`), [
    'warn: Service "default/a" is in a manifest file twice; the first one counts | 1:1 items[2]',
  ]);
});

test('a part that is left out is a warning, once', () => {
  const text = '{kind: Endpoints, metadata: {name: a}, subsets: [{addresses: [{ip: 10.0.0.1}, {ip: 127.0.0.1}]}]}\n';
  const subject = new Subject();
  assert.deepEqual(subject.reads(text), [
    'warn: A part of Endpoints "default/a" is left out | ' +
      '1:1 subsets[0].addresses[1].ip is "127.0.0.1"; a loopback address is proxied only with --allow-loopback-endpoints',
  ]);
  assert.deepEqual(subject.reads(`# comment\n${text}`), []);
});

test('lists are read through, typed ones without the kind of their items, and faults name the item', () => {
  const subject = new Subject();
  const list = `{apiVersion: v1, kind: List, items: [${service('a')}, {kind: Pod}, ${service('b', 'bad')}]}\n`;
  const typed =
    '{kind: ServiceList, items: [{metadata: {name: c}, spec: {clusterIP: 10.96.0.1, ports: [{port: 1}]}}]}\n';
  assert.deepEqual(subject.reads(file(list, typed)), [
    'error: Service "default/b" is not valid; it is left out | 1:2 items[2].spec.clusterIP is "bad"; expected an IP address',
    UNUSED,
  ]);
  assert.deepEqual(subject.serves, ['a=1', 'c=1']);
});

const UNUSED = 'info: A manifest file has objects of kinds that the proxy does not use |';

test('a fault within a list is reported with its own line, in YAML and in JSON', () => {
  const item = (name: string, clusterIP: string) => ({
    ...{ apiVersion: 'v1', kind: 'Service', metadata: { name } },
    spec: { clusterIP, ports: [{ port: 80 }] },
  });
  const json = `${JSON.stringify({ kind: 'List', items: [item('a', '10.96.0.1'), item('b', 'bad')] }, null, 1)}\n`;
  const line = json.slice(0, json.indexOf('"bad"')).split('\n').length;
  const told = 'error: Service "default/b" is not valid; it is left out |';
  const fault = 'items[1].spec.clusterIP is "bad"; expected an IP address';
  assert.deepEqual(new Subject().reads(json), [`${told} 1:${line} ${fault}`]);
  const yaml = file(
    service('x'),
    `\nkind: List\nitems:\n- ${service('a')}- ${service('b', 'bad').replace('spec:', '\n  spec:')}`,
  );
  assert.deepEqual(new Subject().reads(yaml), [`${told} 2:8 ${fault}`]);
});

test('a key of any spelling leads to its line', () => {
  const text = `kind: EndpointSlice\nmetadata:\n  name: s\n  labels:\n    x: y\n    kubernetes.io/service-name: B!\n`;
  const [told] = new Subject().reads(`${text}addressType: IPv4\nendpoints: []\n`);
  assert.match(told ?? '', /1:6 metadata\.labels\[kubernetes\.io\/service-name\] /);
});

test('a list that is none may hold anything, so nothing is removed', () => {
  const subject = new Subject();
  subject.reads(service('a'));
  for (const list of ['{kind: List, items: 5}', '{kind: List, items: [{kind: List, items: []}]}', '[]', '{}']) {
    assert.equal(subject.reads(list).filter((line) => line.startsWith('error')).length, 1, list);
    assert.deepEqual(subject.serves, ['a=1'], list);
  }
});

test('other kinds are named once, and empty documents are ignored', () => {
  const subject = new Subject();
  const others =
    '{apiVersion: apps/v1, kind: Deployment}\n---\n---\n# nothing\n---\n{kind: DeploymentList, items: 5}\n';
  assert.deepEqual(subject.reads(file(service('a'), others)), [UNUSED]);
  assert.equal(subject.state.unusedKinds, 'Deployment, DeploymentList');
  assert.deepEqual(subject.reads(file(service('a'), service('b'), others)), []);
  assert.deepEqual(subject.serves, ['a=1', 'b=1']);
});

test('an equal object is the same one, so that comparing it again is cheap', () => {
  const subject = new Subject();
  subject.reads(service('a'));
  const before = subject.state.objects[0]?.event;
  subject.reads(`# edited\n${service('a')}`);
  assert.ok(before !== undefined && subject.state.objects[0]?.event === before);
});

test('what was meant otherwise is told once with its line, until it is corrected', () => {
  const subject = new Subject();
  const typo = (extra: string) =>
    `kind: Service\nmetadata: {name: a}\nspec:\n  clusterIP: 10.96.0.1\n${extra}  ports: [{port: 80}]\n`;
  assert.deepEqual(subject.reads(typo('  sessionAffinty: ClientIP\n')), [
    'warn: A part of Service "default/a" has no effect | ' +
      '1:5 spec.sessionAffinty is not a field of a Service; did you mean sessionAffinity?',
  ]);
  assert.deepEqual(subject.serves, ['a=1']);
  assert.deepEqual(subject.reads(`# moved\n${typo('  sessionAffinty: None\n')}`), []);
  assert.deepEqual(subject.reads(typo('')), ['info: Service "default/a" is valid again |']);
  const subsets = '\nsubsets:\n  - adresses: [{ip: 10.0.0.1}]\n';
  assert.deepEqual(new Subject().reads(`kind: Endpoints\nmetadata: {name: a}${subsets}`), [
    'warn: A part of Endpoints "default/a" has no effect | ' +
      '1:4 subsets[0].adresses is not a field of Endpoints; did you mean addresses?',
  ]);
});

test('a kind that was meant to be ours is an error with its line, in a list as well, and costs only its object', () => {
  const subject = new Subject();
  const endpoints = (kind: string) => `kind: ${kind}\nmetadata: {name: a}\nsubsets: []\n`;
  subject.reads(file(service('a'), service('b'), endpoints('Endpoints')));
  assert.deepEqual(subject.reads(file(service('a'), endpoints('Endpoint'))), [
    'error: Endpoints "default/a" is not valid; its last good state is kept | ' +
      '2:3 kind is "Endpoint"; did you mean Endpoints?',
  ]);
  const kept = subject.state.objects.flatMap(({ id, event }) => (event === undefined ? [] : [id]));
  assert.deepEqual(kept.sort(), ['Endpoints "default/a"', 'Service "default/a"']);
  const list = 'kind: List\nitems:\n  - kind: Pod\n  - metadata: {name: x}\n    kind: Servise\n';
  assert.deepEqual(new Subject().reads(list), [
    'error: Service "default/x" is not valid; it is left out | 1:5 items[1].kind is "Servise"; did you mean Service?',
    UNUSED,
  ]);
});

test('a Service without an address and a slice without a Service say what is missing; None and other proxies are fine', () => {
  const missing = (what: string) => `kind: Service\nmetadata: {name: a}\nspec: {${what}ports: [{port: 80}]}\n`;
  for (const spec of ['', 'type: NodePort, ', 'clusterIP: "", ']) {
    assert.deepEqual(new Subject().reads(missing(spec)), [
      'warn: Service "default/a" is not served | ' +
        '1:3 spec.clusterIP is missing, and only an API server assigns one; write a free address, or give --service-cluster-ip-range',
    ]);
  }
  for (const spec of ['clusterIP: None, colour: red, ', 'clusterIPs: [None], ', 'type: ExternalName, colour: red, ']) {
    assert.deepEqual(new Subject().reads(missing(spec)), []);
  }
  const slice = 'kind: EndpointSlice\nmetadata: {name: a-1}\naddressType: IPv4\nendpoints: []\n';
  assert.deepEqual(new Subject().reads(slice), [
    'warn: EndpointSlice "default/a-1" is not served | ' +
      '1:2 metadata.labels[kubernetes.io/service-name] is missing; write the name of the Service',
  ]);
});
