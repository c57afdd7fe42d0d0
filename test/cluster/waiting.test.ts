import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { load } from 'js-yaml';
import { metric, TCP, UDP } from '../netns/harness.ts';
import { Shims } from '../netns/iptables.ts';
import { PROGRAM } from '../netns/proxy.ts';
import { POD_ADDRESSES } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { commandsOf } from '../support/walk.ts';
import { type ApiObject, NAMESPACE } from './admin.ts';
import { Cluster, type ServedService } from './cluster.ts';
import { binary } from './control-plane.ts';

const IDLED_AT = 'idling.alpha.openshift.io/idled-at';
const PORTS = [{ name: 'http', port: 80, target: TCP.name }] as const;

const GUIDE = 'docs/waiting-room.md';

/** What the guide shows in this section. */
function shown(heading: string, language: string): readonly string[] {
  return commandsOf(GUIDE, language)
    .filter((each) => each.heading === heading)
    .map(({ script }) => script);
}

/** The last object that the guide shows in this section. */
function recipe(heading: string): ApiObject {
  return load(shown(heading, 'yaml').at(-1) ?? '');
}

/** KEDA's own files about its objects, where `scripts/cluster-assets` puts them. */
function ofKeda(file: string): string {
  return join(process.env['KEDA_SCHEMAS'] ?? '', file);
}

/** As `oc idle` writes it: in seconds. */
function timestamp(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d+/, '');
}

describe('Services at zero replicas', () => {
  let cluster: Cluster;
  let shims: Shims;
  let wrong: ServedService;

  before(async () => {
    cluster = await Cluster.create();
    shims = await Shims.create(cluster.environment.temporary('shims'));
    await cluster.startProxy({ env: { PATH: shims.path } });
    // Its event takes up to half a minute, see the test about it.
    const annotations = { 'kube-userspace-proxy/wait-for-endpoints': 'soon' };
    wrong = await cluster.serve({ name: 'wrong', ports: PORTS, annotations }, []);
  });

  after(() => cluster.remove());

  const calls = async (service: string): Promise<readonly ApiObject[]> => {
    const list = await cluster.admin.request('GET', '/api/v1/events?fieldSelector=reason%3DNeedPods');
    return list.items.filter(({ involvedObject }: ApiObject) => involvedObject.name === service);
  };

  const ask = ({ host }: ServedService) =>
    cluster.environment.client.call('request', { host, port: 80, timeoutMs: 60_000 });

  const metricOf = async (name: string, service: string) =>
    metric(await cluster.environment.metricsText(), `userspace_proxy_${name}`, `service="${service}"`);

  const stateOf = async (name: string): Promise<string> => {
    return JSON.parse(await run('list', `${NAMESPACE}/${name}`, '-o', 'json')).services[0].state;
  };

  const node = (argv: readonly string[]) =>
    cluster.environment.topology.node.run([
      PROGRAM,
      ...argv,
      `--control-socket=${cluster.environment.proxy.controlSocket}`,
    ]);

  const run = async (...argv: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await node(argv);
    assert.equal(code, 0, stderr);
    return stdout;
  };

  /**
   * Plays OpenShift's unidling controller (openshift/openshift-controller-manager `pkg/unidling/controller`): the last
   * event with the reason NeedPods counts, unless its `lastTimestamp` lies before the mark. It scales up and takes the
   * mark away; the pods are ready some time later.
   */
  async function unidle(service: string): Promise<readonly ApiObject[]> {
    const heard = await waitFor('a call that is not out of date', async () => {
      const { metadata } = await cluster.admin.get('services', service);
      const idledAt = Date.parse(metadata.annotations[IDLED_AT]);
      const events = await calls(service);
      return events.some(({ lastTimestamp }) => Date.parse(lastTimestamp) >= idledAt) && events;
    });
    await cluster.admin.patch('services', service, { metadata: { annotations: { [IDLED_AT]: null } } });
    return heard;
  }

  test('an idled one is woken by its first client, who waits, though the first call is dropped for its time', async () => {
    const name = cluster.name('idled');
    // The node's clock is six seconds slow.
    const annotations = { [IDLED_AT]: timestamp(Date.now() + 6_000) };
    const service = await cluster.serve({ name, ports: PORTS, annotations }, []);
    shims.forget();
    const answer = ask(service);
    const [first, ...repeated] = await unidle(name);
    assert.ok(repeated.length > 0, 'the first one was too early');
    assert.deepEqual(
      [first.type, first.reason, first.message, first.source.component],
      ['Normal', 'NeedPods', `The service-port ${name}:http needs pods.`, 'kube-proxy'],
    );
    const { uid } = (await cluster.admin.get('services', name)).metadata;
    assert.deepEqual(first.involvedObject, { kind: 'Service', namespace: NAMESPACE, name, uid });
    assert.equal(await metricOf('clients_waiting', name), 1, 'it still waits, now that the mark is gone');
    const late = ask(service);
    await waitFor('the second client waits', async () => (await metricOf('clients_waiting', name)) === 2);
    await cluster.setEndpoints(name, POD_ADDRESSES.slice(0, 1));
    assert.deepEqual([(await answer).name, (await late).name], ['pod-1', 'pod-1']);
    assert.deepEqual(shims.writes(), [], 'no rule was written');
    assert.equal(await metricOf('wake_calls_total', name), (await calls(name)).length);
    assert.equal(await metricOf('wait_seconds_count', name), 2);
    assert.equal(await metricOf('clients_waiting', name), 0);
  });

  test('one that asks for it has a call at once, and goes to zero and back without a run of iptables', async () => {
    const name = cluster.name('asleep');
    const annotations = { 'kube-userspace-proxy/wait-for-endpoints': '1m' };
    const ports = [...PORTS, { name: 'dns', port: 53, target: UDP['udp-name'], protocol: 'UDP' }] as const;
    const service = await cluster.serve({ name, ports, annotations }, POD_ADDRESSES);
    await cluster.isUp(service, ['pod-1', 'pod-2', 'pod-3']);
    shims.forget();
    await cluster.setEndpoints(name, []);
    await waitFor('it sleeps', async () => {
      return (await stateOf(name)) === 'idle';
    });
    const answer = ask(service);
    await waitFor('a call', async () => (await calls(name)).length === 1);
    const attempts = [{ protocol: 'udp', host: service.host, port: 53 }] as const;
    const datagram = cluster.environment.client.call('outcomes', { attempts, timeoutMs: 30_000 });
    await waitFor('another, for the other port', async () => (await calls(name)).length === 2);
    assert.equal(await stateOf(name), 'waiting');
    const connections = await run('list', '-c', `${NAMESPACE}/${name}`);
    assert.match(connections, /^TCP [ \d:]+ WAITING +10\.244\.1\.20:\d+ +\S+:80 +- +test\/asleep-\d+:http$/m);
    const explained = await node(['explain', `${service.host}:80`]);
    assert.equal(explained.code, 1);
    assert.match(explained.stdout, /takes it; the client would wait up to 1m0s: it has no endpoints/);
    await cluster.setEndpoints(name, POD_ADDRESSES.slice(1, 2));
    assert.deepEqual([(await answer).name, await datagram], ['pod-2', ['pod-2']]);
    await cluster.isUp(service, ['pod-2']);
    assert.deepEqual(shims.writes(), []);
    assert.equal((await calls(name)).length, 2);
  });

  test('a wrong annotation has an event on the Service, and clients are refused as by default', async () => {
    await cluster.becomes('ECONNREFUSED', { protocol: 'tcp', host: wrong.host, port: 80 });
    const path = `/api/v1/namespaces/${NAMESPACE}/events?fieldSelector=reason%3DServicePartLeftOut`;
    const [event] = await waitFor('the event', async () => {
      const { items } = await cluster.admin.request('GET', path);
      return items.length > 0 && items;
    });
    assert.deepEqual(event.involvedObject.name, wrong.name);
    assert.match(
      event.message,
      /goes without kube-userspace-proxy\/wait-for-endpoints: it is "soon"; write "0", or a /,
    );
  });

  /** Creates an object, each of whose fields the server must know. Gives what it has made of it. */
  const create = async (object: ApiObject): Promise<ApiObject> =>
    JSON.parse(
      await cluster.kubectl(['create', '--validate=strict', '-o=json', '--filename=-'], JSON.stringify(object)),
    );

  test("the guide's controller scales a Deployment up for the client that waits, and no other", async () => {
    const { environment, admin, plane } = cluster;
    const [script = ''] = shown('A controller of ten lines', 'sh');
    const folder = environment.temporary('controller');
    mkdirSync(folder);
    symlinkSync(binary('KUBECTL'), join(folder, 'kubectl'));
    writeFileSync(join(folder, 'controller.sh'), script);
    const sleeping = cluster.name('sleeping');
    const untouched = cluster.name('untouched');
    for (const name of [sleeping, untouched]) await create(deployment(name));
    const waits = { 'kube-userspace-proxy/wait-for-endpoints': '2m' };
    const annotations = { ...waits, 'example.com/wakes': sleeping };
    const service = await cluster.serve({ name: sleeping, ports: PORTS, annotations }, []);
    const silent = await cluster.serve({ name: untouched, ports: PORTS, annotations: waits }, []);

    const controller = environment.topology.node.spawn(
      ['sh', join(folder, 'controller.sh')],
      { PATH: `${folder}:${process.env['PATH']}`, KUBECONFIG: environment.temporary('admin.kubeconfig') },
      ['ignore', 'ignore', 'inherit'],
    );
    try {
      // Else it would hear of them a minute later.
      await waitFor('it to watch', async () => {
        const { body } = await environment.node.call('https', {
          url: `${plane.localServer}/metrics`,
          caFile: plane.caFile,
          headers: { authorization: `Bearer ${plane.token('admin')}` },
        });
        return /^apiserver_longrunning_requests\{.*resource="events".*verb="WATCH".*\} 1$/m.test(body);
      });
      const unheard = ask(silent);
      await waitFor('a call that names no Deployment', async () => (await calls(untouched)).length === 1);
      const answer = ask(service);
      const replicas = async (name: string) =>
        (await admin.request('GET', `/apis/apps/v1/namespaces/${NAMESPACE}/deployments/${name}`)).spec.replicas;
      await waitFor('the Deployment to be scaled', async () => (await replicas(sleeping)) === 1);
      // There is no controller of Deployments.
      await cluster.setEndpoints(sleeping, POD_ADDRESSES.slice(0, 1));
      assert.equal((await answer).name, 'pod-1');
      assert.equal(await replicas(untouched), 0);
      await cluster.setEndpoints(untouched, POD_ADDRESSES.slice(1, 2));
      assert.equal((await unheard).name, 'pod-2');
    } finally {
      controller.kill();
    }
  });

  test("the API server takes each field of the guide's HorizontalPodAutoscaler", async (t) => {
    const { minor } = await cluster.admin.request('GET', '/version');
    if (Number.parseInt(minor, 10) < 37) return t.skip('it scales to zero since Kubernetes 1.37');
    await cluster.admin.create('namespaces', { metadata: { name: 'shop' } });
    const object = recipe('The HPA');
    assertHolds(await create(object), object);
    assert.equal(object.spec.minReplicas, 0);
  });

  test("the API server takes each field of the guide's ScaledObject, by KEDA's own schema", async () => {
    await cluster.kubectl(['create', `--filename=${ofKeda('keda.sh_scaledobjects.yaml')}`]);
    await cluster.kubectl(['wait', '--for=condition=Established', 'crd/scaledobjects.keda.sh', '--timeout=60s']);
    const object = recipe('KEDA');
    assertHolds(await create(object), object);
    const { scalers } = load(readFileSync(ofKeda('scalers-schema.yaml'), 'utf8')) as ApiObject;
    for (const { type, metadata } of object.spec.triggers) {
      const { parameters } = scalers.find((scaler: ApiObject) => scaler.type === type);
      const known = new Set(parameters.map(({ name }: ApiObject) => name));
      assert.deepEqual(
        Object.keys(metadata).filter((name) => !known.has(name)),
        [],
      );
      const needed = parameters.filter((each: ApiObject) => !each.optional && each.default === undefined);
      assert.deepEqual(
        needed.filter(({ name }: ApiObject) => !(name in metadata)),
        [],
      );
    }
  });
});

/** At zero replicas. */
function deployment(name: string): object {
  const labels = { app: name };
  const containers = [{ name: 'main', image: 'registry.example/main:1' }];
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name, namespace: NAMESPACE },
    spec: { replicas: 0, selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { containers } } },
  };
}

/** The server may have added fields, and has kept all that there were. */
function assertHolds(kept: ApiObject, given: ApiObject, path = ''): void {
  if (typeof given !== 'object' || given === null) {
    assert.deepEqual(kept, given, path);
    return;
  }
  assert.ok(typeof kept === 'object' && kept !== null, path);
  for (const [key, value] of Object.entries(given)) assertHolds(kept[key], value, `${path}.${key}`);
}
