import { isDeepStrictEqual } from 'node:util';
import type { Agent } from '../netns/agent.ts';
import { Environment, metric, type ProxyOptions } from '../netns/harness.ts';
import { addIpv6, IPV6 } from '../netns/ipv6.ts';
import type { Attempt, Outcome } from '../netns/programs/outcomes.ts';
import type { ProxyProcess } from '../netns/proxy.ts';
import { NODE_ADDRESS } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';
import { Admin, type ApiObject, NAMESPACE } from './admin.ts';
import { binary, ControlPlane } from './control-plane.ts';
import { type Endpoint, type ServiceOptions, serviceObject, sliceEndpoints, sliceObject } from './objects.ts';

export const NODE_NAME = 'node-1';
/** The node's. */
export const ZONE = 'zone-1';

/** Where to reach a Service port. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

export interface ServedService extends ServiceOptions, Target {
  /** Of the first port. */
  readonly nodePort: number;
}

export interface ClusterProxyOptions extends Omit<ProxyOptions, 'source'> {
  readonly kubeconfig?: string;
}

/** The proxy's metrics of its connection to the API server. */
export interface ApiState {
  readonly connected: boolean;
  readonly staleSeconds: number;
}

/** A node that has a real control plane on it and a proxy that knows nothing but a kubeconfig. */
export class Cluster {
  readonly environment: Environment;
  readonly plane: ControlPlane;
  readonly admin: Admin;
  /** Of user `system:kube-proxy`. */
  readonly kubeconfig: string;

  private constructor(environment: Environment, plane: ControlPlane) {
    this.environment = environment;
    this.plane = plane;
    this.admin = new Admin(environment.node, plane);
    this.kubeconfig = environment.temporary('kube-proxy.kubeconfig');
  }

  static async create({ dualStack = false } = {}): Promise<Cluster> {
    const environment = await Environment.create();
    try {
      if (dualStack) await addIpv6(environment);
      const plane = await ControlPlane.start({
        node: environment.topology.node,
        agent: environment.node,
        address: NODE_ADDRESS,
        directory: environment.temporary('control-plane'),
        serviceRanges: dualStack ? `10.96.0.0/16,${IPV6.clusterIPs}` : '10.96.0.0/16',
      });
      const cluster = new Cluster(environment, plane);
      plane.writeKubeconfig(cluster.kubeconfig, { user: 'proxy', server: plane.server });
      plane.writeKubeconfig(environment.temporary('admin.kubeconfig'), { user: 'admin' });
      await cluster.admin.create('namespaces', { metadata: { name: NAMESPACE } });
      await cluster.admin.create('nodes', {
        metadata: { name: NODE_NAME, labels: { 'topology.kubernetes.io/zone': ZONE } },
        status: {
          addresses: [NODE_ADDRESS, ...(dualStack ? [IPV6.node] : [])].map((address) => ({
            type: 'InternalIP',
            address,
          })),
        },
      });
      return cluster;
    } catch (error) {
      await environment.remove();
      throw error;
    }
  }

  async remove(): Promise<void> {
    await this.environment.remove();
  }

  /** With frequent syncs, so that tests need not wait for them; `args` come last. */
  startProxy(options: ClusterProxyOptions = {}): Promise<ProxyProcess> {
    const { kubeconfig = this.kubeconfig, args = [], ...others } = options;
    return this.environment.startProxy({
      ...others,
      source: ['--kubeconfig', kubeconfig],
      args: ['--hostname-override', NODE_NAME, '--iptables-min-sync-period', '100ms', ...args],
    });
  }

  /** Standard output of `kubectl` for an administrator. */
  kubectl(args: readonly string[], input = ''): Promise<string> {
    return this.#asAdmin('KUBECTL', args, input);
  }

  /** Standard output of `helm` for an administrator. */
  helm(args: readonly string[]): Promise<string> {
    return this.#asAdmin('HELM', args);
  }

  #asAdmin(program: 'KUBECTL' | 'HELM', args: readonly string[], input = ''): Promise<string> {
    const kubeconfig = this.environment.temporary('admin.kubeconfig');
    return this.environment.topology.node.output([binary(program), '--kubeconfig', kubeconfig, ...args], { input });
  }

  /** A name that no other caller has. */
  name(prefix = 'service'): string {
    return `${prefix}-${this.environment.number()}`;
  }

  /** Creates a Service and its slice. Gives where to reach it; does not wait for it to be served. */
  async create(options: ServiceOptions, endpoints: readonly (string | Endpoint)[]): Promise<ServedService> {
    const [service] = await Promise.all([
      this.admin.create('services', serviceObject(options)),
      this.admin.create('endpointslices', sliceObject(options, endpoints)),
    ]);
    return served(options, service);
  }

  /** The same, and waits for its rules. */
  async serve(options: ServiceOptions, endpoints: readonly (string | Endpoint)[]): Promise<ServedService> {
    const service = await this.create(options, endpoints);
    await this.environment.waitForRules(service.host, options.ports.length);
    const hasReady = endpoints.some((each) => typeof each === 'string' || each.ready !== false);
    if (hasReady) await this.isCarried(service.host);
    return service;
  }

  setEndpoints(name: string, endpoints: readonly (string | Endpoint)[]): Promise<ApiObject> {
    return this.admin.patch('endpointslices', name, { endpoints: sliceEndpoints(endpoints) });
  }

  /** Plays the part of a cloud: writes a load balancer IP that nobody else has into the status. Gives it. */
  async giveLoadBalancerIP(name: string): Promise<string> {
    const ip = `203.0.113.${this.environment.number()}`;
    await this.admin.patch('services', `${name}/status`, { status: { loadBalancer: { ingress: [{ ip }] } } });
    return ip;
  }

  async deleteService(name: string): Promise<void> {
    await Promise.all([this.admin.delete('services', name), this.admin.delete('endpointslices', name)]);
  }

  /**
   * Until exactly these backends answer at this address, and each request is answered: `verifyServeHostnameServiceUp`
   * of the e2e tests. By default a pod and the node send requests.
   */
  async isUp(target: Target, names: readonly string[], from: readonly Agent[] = this.#callers()): Promise<void> {
    const expected = [...names].sort().join();
    await waitShowing(`${target.host}:${target.port} is served by ${expected}`, async (show) => {
      // Without rules packets get lost, so one request comes before the others.
      if (!(await this.#answered(target, from)).every(Boolean)) return false;
      const tallies = await Promise.all(
        from.map((agent) => agent.call('requests', { ...target, count: 4 * names.length })),
      );
      show(tallies.map((tally) => [tally.names, tally.failures]));
      return tallies.every(
        (tally) => Object.keys(tally.names).sort().join() === expected && Object.keys(tally.failures).length === 0,
      );
    });
  }

  /** The same by UDP: each backend answers the same number of flows. */
  async isUpByUdp({ host, port }: Target, names: readonly string[], from: readonly Agent[]): Promise<void> {
    const expected = Object.fromEntries(names.map((name) => [name, 3]));
    for (const agent of from) {
      await waitShowing(`udp ${host}:${port} is served in turn by ${names}`, async (show) => {
        const flows = await agent.call('udpFlows', { host, port, count: 3 * names.length, timeoutMs: 2_000 });
        show(flows);
        return isDeepStrictEqual(flows, expected);
      });
    }
  }

  /** Until nobody gets an answer at this address. */
  async isDown(target: Target, from: readonly Agent[] = this.#callers()): Promise<void> {
    await waitFor(`${target.host}:${target.port} is not served`, async () => {
      return (await this.#answered(target, from)).every((isAnswered) => !isAnswered);
    });
  }

  /** Until an attempt from each of these places has this outcome: the name of a backend, an error code or `timeout`. */
  async becomes(outcome: Outcome, attempt: Attempt, from: readonly Agent[] = this.#callers()): Promise<void> {
    await waitShowing(`${attempt.protocol} ${attempt.host}:${attempt.port}: ${outcome}`, async (show) => {
      const asked = from.map((agent) => agent.call('outcomes', { attempts: [attempt], timeoutMs: 1_000 }));
      const outcomes = (await Promise.all(asked)).flat();
      show(outcomes);
      return outcomes.every((each) => each === outcome);
    });
  }

  /** From `/metrics`. */
  async apiState(): Promise<ApiState> {
    const text = await this.environment.metricsText();
    return {
      connected: metric(text, 'userspace_proxy_api_connected') === 1,
      staleSeconds: metric(text, 'userspace_proxy_api_stale_seconds'),
    };
  }

  async healthz(): Promise<{ status: number; apiServer: { connected: boolean; staleForSeconds: number } }> {
    const { status, body } = await this.environment.node.call('httpGet', { url: 'http://127.0.0.1:10256/healthz' });
    return { status, apiServer: JSON.parse(body).apiServer };
  }

  /** The Service may come before its slice. Until then its rules lead to local port 1, which refuses. */
  async isCarried(host: string): Promise<void> {
    await waitFor(`the rules of ${host} lead to listeners`, async () => {
      const rules = await this.environment.iptables.rules('KUBE-PORTALS-CONTAINER');
      return !rules.some((rule) => rule.includes(` -d ${host}/32 `) && rule.endsWith(':1'));
    });
  }

  /** Which of the callers get an answer to one request. */
  #answered(target: Target, from: readonly Agent[]): Promise<boolean[]> {
    const ask = (agent: Agent) =>
      agent.call('request', { host: target.host, port: target.port, timeoutMs: 1_000 }).then(
        () => true,
        () => false,
      );
    return Promise.all(from.map(ask));
  }

  #callers(): readonly Agent[] {
    return [this.environment.client, this.environment.node];
  }
}

/** Waits for `condition`. Its failure names what the condition has shown last. */
export async function waitShowing(what: string, condition: (show: (seen: unknown) => void) => Promise<boolean>) {
  let last: unknown;
  const show = (seen: unknown) => {
    last = seen;
  };
  await waitFor(what, () => condition(show)).catch((error: Error) => {
    throw new Error(`${error.message}; seen: ${JSON.stringify(last)}`);
  });
}

function served(options: ServiceOptions, { spec }: ApiObject): ServedService {
  return { ...options, host: spec.clusterIP, port: spec.ports[0].port, nodePort: spec.ports[0].nodePort ?? 0 };
}
