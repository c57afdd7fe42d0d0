import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Admin, ApiRefusal, NAMESPACE } from '../../test/cluster/admin.ts';
import { ControlPlane } from '../../test/cluster/control-plane.ts';
import { serviceObject, servicePort, sliceEndpoints, sliceObject } from '../../test/cluster/objects.ts';
import type { Agent } from '../../test/netns/agent.ts';
import { Manifests, serviceObjects } from '../../test/netns/manifests.ts';
import { NODE_ADDRESS, type Topology } from '../../test/netns/topology.ts';
import type { ScaleService } from './services.ts';

/** Where Services come from. Every operation resolves when it has been written. */
export interface ServiceStore {
  /** Flags that lead the proxy here. */
  readonly flags: readonly string[];
  create(service: ScaleService): Promise<void>;
  setEndpoints(service: ScaleService): Promise<void>;
  /** Its ports, annotations and endpoints. */
  replace(service: ScaleService): Promise<void>;
  delete(service: ScaleService): Promise<void>;
}

const NODE_NAME = 'node-1';
const ATTEMPTS = 10;

/** Between documents of a file. */
const SEPARATOR = '\n---\n';

export interface ApiStore extends ServiceStore {
  readonly plane: ControlPlane;
}

/** A real etcd and kube-apiserver on the node. */
export async function createApiStore(topology: Topology, agent: Agent): Promise<ApiStore> {
  const plane = await ControlPlane.start({
    node: topology.node,
    agent,
    address: NODE_ADDRESS,
    directory: join(topology.directory, 'control-plane'),
    serviceRanges: '10.96.0.0/16',
  });
  const kubeconfig = join(topology.directory, 'kube-proxy.kubeconfig');
  plane.writeKubeconfig(kubeconfig, { user: 'proxy', server: plane.server });
  const admin = new Admin(agent, plane);
  await admin.create('namespaces', { metadata: { name: NAMESPACE } });
  const addresses = [{ type: 'InternalIP', address: NODE_ADDRESS }];
  await admin.create('nodes', { metadata: { name: NODE_NAME }, status: { addresses } });

  const patchEndpoints = (name: string, endpoints: readonly string[]) =>
    admin.patch('endpointslices', name, { endpoints: sliceEndpoints(endpoints) });

  return {
    plane,
    flags: ['--kubeconfig', kubeconfig, '--hostname-override', NODE_NAME],
    async create(service) {
      const type = service.ports[0].nodePort === undefined ? 'ClusterIP' : 'NodePort';
      // The Service last: from then on it can be reached.
      await persistently(409, () => admin.create('endpointslices', sliceObject(service, service.endpoints)));
      await persistently(409, () => admin.create('services', serviceObject({ ...service, type })));
    },
    async setEndpoints({ name, endpoints }) {
      await persistently(undefined, () => patchEndpoints(name, endpoints));
    },
    async replace({ name, ports, annotations, endpoints }) {
      await persistently(undefined, () => patchEndpoints(name, endpoints));
      // `null` removes all that there are.
      const metadata = { annotations: annotations ?? null };
      const spec = { ports: ports.map(servicePort) };
      await persistently(undefined, () => admin.patch('services', name, { metadata, spec }));
    },
    async delete({ name }) {
      await persistently(404, () => admin.delete('services', name));
      await persistently(404, () => admin.delete('endpointslices', name));
    },
  };
}

/**
 * Again after a failure of the server, which has deadlines of its own and may have stood still meanwhile. The write may
 * have been made before: that is what a status of `done` says.
 */
async function persistently(done: 404 | 409 | undefined, write: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await write();
      return;
    } catch (error) {
      if (!(error instanceof ApiRefusal)) throw error;
      if (error.status === done) return;
      if (error.status < 500 || attempt === ATTEMPTS) throw error;
      await sleep(1_000);
    }
  }
}

/** A directory of manifests: so many files that have the Services among them, or a file for each Service. */
export function createManifestStore(topology: Topology, files?: number): ServiceStore {
  const manifests = new Manifests(join(topology.directory, 'manifests'));
  /** What each file holds, by the Service's number. */
  const texts = new Map<string, Map<number, string>>();
  const change = async (service: ScaleService, text: string | undefined) => {
    const file = `${files === undefined ? service.name : `services-${service.number % files}`}.yaml`;
    const parts = texts.get(file) ?? new Map<number, string>();
    texts.set(file, parts);
    if (text === undefined) parts.delete(service.number);
    else parts.set(service.number, text);
    if (parts.size === 0) manifests.remove(file);
    else manifests.write(file, [...parts.values()].join(SEPARATOR));
  };
  const put = (service: ScaleService) => {
    return change(
      service,
      serviceObjects(service)
        .map((object) => JSON.stringify(object))
        .join(SEPARATOR),
    );
  };
  return {
    flags: ['--manifests', manifests.directory],
    create: put,
    setEndpoints: put,
    replace: put,
    delete: (service) => change(service, undefined),
  };
}
