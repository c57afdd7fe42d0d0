import type { Config } from '../config/config.ts';
import { PROGRAM, VERSION } from '../config/version.ts';
import { reportStarting, UnservedEvents } from '../kubernetes/events.ts';
import { createKubernetesSource } from '../kubernetes/kubernetes-source.ts';
import { type NodeStatus, watchNode } from '../kubernetes/node.ts';
import { createApiClient } from '../kubernetes/open-access.ts';
import { createManifestSource } from '../manifests/manifest-source.ts';
import type { ApiRequestMetrics } from '../model/metrics.ts';
import type { UnservedPort } from '../model/service-port.ts';
import type { ApiStatus, ServiceSource } from '../model/source.ts';
import type { Log } from '../util/log.ts';
import { systemClock as clock } from '../util/system-clock.ts';

/** Where Services come from, and what is known of this node there. */
export interface Source extends ServiceSource {
  /** `host:port` of the API server. */
  readonly server?: string;
  status?(): ApiStatus;
  /** Tells the API server that the proxy of this node starts; and what it has to say of this node, now and later. */
  followNode?(onChange: (status: NodeStatus) => void): void;
  /** Tells those who look at the Service. */
  reportUnserved?(port: UnservedPort): void;
}

export async function openSource(
  { source: config }: Config,
  {
    nodeName: name,
    log,
    metrics,
    signal,
  }: {
    readonly nodeName: string;
    readonly log: Log;
    readonly metrics: ApiRequestMetrics;
    /** Ends what is asked and told beside the Services. */
    readonly signal: AbortSignal;
  },
): Promise<Source> {
  if (config.kind === 'manifests') return createManifestSource({ paths: config.paths, clock, log });
  const api = await createApiClient({
    ...config,
    userAgent: `${PROGRAM}/${VERSION}`,
    env: process.env,
    clock,
    log,
    metrics,
  });
  const source = createKubernetesSource({ api, clock, random: Math.random, log });
  const unserved = new UnservedEvents({ node: name, api, clock, random: Math.random, log, signal });
  return {
    server: api.host,
    start: (sink) => source.start(sink),
    stop: async () => {
      await source.stop();
      api.close();
    },
    status: () => source.status(),
    followNode: (onChange) => {
      void reportStarting({ node: name, program: `${PROGRAM} ${VERSION}`, api, clock, log, signal });
      void watchNode({ name, transport: api, clock, random: Math.random, log, onChange, signal });
    },
    reportUnserved: (port) => unserved.report(port),
  };
}
