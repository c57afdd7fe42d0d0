import type { Config } from '../config/config.ts';
import { PROGRAM, VERSION } from '../config/version.ts';
import { postNeedPods, reportStarting, UnservedEvents } from '../kubernetes/events.ts';
import { KubernetesSource } from '../kubernetes/kubernetes-source.ts';
import { type NodeStatus, watchNode } from '../kubernetes/node.ts';
import { createApiServers } from '../kubernetes/open-access.ts';
import { watchServiceCidrs } from '../kubernetes/service-cidrs.ts';
import { ManifestSource } from '../manifests/manifest-source.ts';
import type { Cidr } from '../model/address.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { Finding } from '../model/finding.ts';
import type { ApiRequestMetrics } from '../model/metrics.ts';
import type { RefusedPart, UnservedPort } from '../model/service-port.ts';
import type { ApiStatus, ServiceSource } from '../model/source.ts';
import type { PodsNeeded } from '../model/waiting.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';
import { type KeptState, keepLastGoodManifests, keepLastState } from './state.ts';

/** Where Services come from, and what this source knows of this node. */
export interface Source extends ServiceSource {
  /** `host:port` of the API server that is used now. */
  readonly server?: string;
  /** See `NodeView`. */
  readonly description: string;
  /** What tells this cluster from any other: the UID of its Service `default/kubernetes`, once it is known. */
  cluster?(): string | undefined;
  /** Where all API servers are, as far as that is known now. */
  servers?(): readonly Endpoint[];
  status?(): ApiStatus;
  /** Reports to the API server that this node's proxy starts. Calls with the Node object's status, now and later. */
  followNode?(onChange: (status: NodeStatus) => void): void;
  /** Calls with the blocks that cluster IPs come from, now and later, where the API server tells them. */
  followServiceCidrs?(onChange: (blocks: readonly Cidr[]) => void): void;
  /** Reports the problem as an Event of the Service. */
  reportUnserved?(part: UnservedPort | RefusedPart): void;
  /** Asks whoever scales the Service for pods. Rejects when nobody heard it. */
  callForPods?(needed: PodsNeeded): Promise<void>;
  /** What is wrong with files of Services. */
  findings?(): Iterable<Finding>;
  /** Missing without `--state-dir`. */
  readonly state?: KeptState;
}

export interface SourceSetup {
  readonly nodeName: string;
  readonly log: Log;
  readonly metrics: ApiRequestMetrics;
  /** Ends the requests that are not about Services. */
  readonly signal: AbortSignal;
}

function servedState(state: KeptState | undefined): Pick<ApiStatus, 'servedStateOf'> {
  const servedStateOf = state?.servedOf();
  return servedStateOf === undefined ? {} : { servedStateOf };
}

export async function openSource({ source: config, state }: Config, setup: SourceSetup): Promise<Source> {
  const { nodeName: name, log, metrics, signal } = setup;
  if (config.kind === 'manifests') {
    const description = `the files in ${config.paths.join(', ')}`;
    const kept = state && (await keepLastGoodManifests(config, state, setup));
    const source = kept?.source ?? new ManifestSource({ ...config, clock, log });
    return Object.assign(source, { description, ...(kept !== undefined && { state: kept.state }) });
  }
  const userAgent = `${PROGRAM}/${VERSION}`;
  const means = { userAgent, env: process.env, clock, random: Math.random, log, metrics };
  const api = await createApiServers({ ...config, ...means });
  const common = { clock, random: Math.random, log, signal };
  const server = new KubernetesSource({ api, clock, random: Math.random, log });
  const kept = state && (await keepLastState(server, api, state, setup));
  const source = kept?.source ?? server;
  const unserved = new UnservedEvents({ ...common, node: name, api });
  return {
    get server() {
      return api.host;
    },
    get description() {
      return `the API server ${api.host}`;
    },
    cluster: () => api.cluster,
    servers: () => api.endpoints,
    start: (sink) => source.start(sink),
    stop: async () => {
      await source.stop();
      api.close();
    },
    unusable: () => server.unusable(),
    serves: (lost) => server.serves(lost),
    status: () => ({ ...server.status(), ...servedState(kept?.state) }),
    followNode: (onChange) => {
      void reportStarting(`${PROGRAM} ${VERSION}`, { node: name, api, clock, log, signal });
      const follow = (to: typeof onChange) => void watchNode({ ...common, name, transport: api, onChange: to });
      if (kept === undefined) follow(onChange);
      else kept.source.node.follow(follow, onChange);
    },
    followServiceCidrs: (onChange) => {
      const follow = (to: typeof onChange) => void watchServiceCidrs({ ...common, transport: api, onChange: to });
      if (kept === undefined) follow(onChange);
      else kept.source.serviceCidrs.follow(follow, onChange);
    },
    reportUnserved: (part) => unserved.report(part),
    callForPods: (needed) => postNeedPods(needed, { node: name, api, clock, signal }),
    ...(kept !== undefined && { state: kept.state }),
  };
}
