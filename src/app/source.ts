import type { Config } from '../config/config.ts';
import { PROGRAM, VERSION } from '../config/version.ts';
import { reportStarting, UnservedEvents } from '../kubernetes/events.ts';
import { KubernetesSource } from '../kubernetes/kubernetes-source.ts';
import { type NodeStatus, watchNode } from '../kubernetes/node.ts';
import { createApiServers } from '../kubernetes/open-access.ts';
import { ManifestSource } from '../manifests/manifest-source.ts';
import type { Endpoint } from '../model/endpoint.ts';
import type { ApiRequestMetrics } from '../model/metrics.ts';
import type { RefusedPart, UnservedPort } from '../model/service-port.ts';
import type { ApiStatus, ServiceSource } from '../model/source.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';

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
  /** Reports the problem as an Event of the Service. */
  reportUnserved?(part: UnservedPort | RefusedPart): void;
}

export interface SourceSetup {
  readonly nodeName: string;
  readonly log: Log;
  readonly metrics: ApiRequestMetrics;
  /** Ends the requests that are not about Services. */
  readonly signal: AbortSignal;
}

export async function openSource({ source: config }: Config, setup: SourceSetup): Promise<Source> {
  const { nodeName: name, log, metrics, signal } = setup;
  if (config.kind === 'manifests') {
    const description = `the files in ${config.paths.join(', ')}`;
    return Object.assign(new ManifestSource({ ...config, clock, log }), { description });
  }
  const userAgent = `${PROGRAM}/${VERSION}`;
  const means = { userAgent, env: process.env, clock, random: Math.random, log, metrics };
  const api = await createApiServers({ ...config, ...means });
  const common = { clock, random: Math.random, log, signal };
  const source = new KubernetesSource({ api, clock, random: Math.random, log });
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
    unusable: () => source.unusable(),
    serves: (lost) => source.serves(lost),
    status: () => source.status(),
    followNode: (onChange) => {
      void reportStarting(`${PROGRAM} ${VERSION}`, { node: name, api, clock, log, signal });
      void watchNode({ ...common, name, transport: api, onChange });
    },
    reportUnserved: (part) => unserved.report(part),
  };
}
