import type { ServiceKey } from '../model/service.ts';
import type { ApiStatus, ServiceSource, SourceEvent, SourceSink, Unusable } from '../model/source.ts';
import type { Clock, Random } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { FieldError } from '../util/untrusted.ts';
import { ApiHealth } from './api-health.ts';
import type { ApiServers } from './api-servers.ts';
import type { Change } from './object-store.ts';
import { decodeObject, type Kind, type KubernetesObject, objectIdentity } from './objects/kubernetes-object.ts';
import { Reflector, type Resource } from './reflector.ts';

interface KubernetesSourceOptions {
  readonly api: ApiServers;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

/**
 * Services and EndpointSlices from the API server, or Endpoints where it has no EndpointSlices. Always retries: while
 * the server is away, the last state stands.
 */
export class KubernetesSource implements ServiceSource {
  readonly #options: KubernetesSourceOptions;
  readonly #health: ApiHealth;
  /** `stop` resolves when the reflector delivers nothing more. */
  readonly #followers = new Map<
    Kind,
    { readonly reflector: Reflector<KubernetesObject>; readonly stop: () => Promise<void> }
  >();
  readonly #listed = new Set<Kind>();
  #sink: SourceSink | undefined;
  #isSynced = false;

  constructor(options: KubernetesSourceOptions) {
    this.#options = options;
    const { api, clock, log } = options;
    this.#health = new ApiHealth({ server: () => api.host, lastContactAt: () => api.lastContactAt, clock, log });
  }

  /** Does not reject when the server cannot be reached: it is retried until that works. */
  async start(sink: SourceSink): Promise<void> {
    this.#sink = sink;
    this.#follow('Service');
    this.#follow('EndpointSlice');
  }

  async stop(): Promise<void> {
    this.#health.stop();
    await Promise.all([...this.#followers.values()].map((follower) => follower.stop()));
  }

  status(): ApiStatus {
    return { ...this.#health.status(), servers: this.#options.api.status() };
  }

  *unusable(): Generator<Unusable> {
    for (const [kind, { reflector }] of this.#followers) {
      for (const { key, problem } of reflector.objects.leftOut()) {
        const subject = `${kind} "${key}"`;
        yield { subject, usable: [], place: subject, err: new FieldError(problem).message };
      }
    }
  }

  serves({ subject }: Unusable): boolean {
    const [kind, key = ''] = subject.split(/ ?"/);
    return this.#followers.get(kind as Kind)?.reflector.objects.has(key) ?? false;
  }

  #follow(kind: Kind): void {
    const { api, clock, random, log } = this.#options;
    const health = this.#health.resource(kind);
    const controller = new AbortController();
    const reflector = new Reflector({
      resource: resourceOf(kind),
      transport: api,
      clock,
      random,
      log,
      sink: {
        ...health,
        changed: (changes) => {
          const events = changes.map((change) => toEvent(kind, change));
          api.learn(events);
          this.#sink?.apply(events);
        },
        listed: () => {
          health.listed();
          this.#hasListed(kind);
        },
        absent: () => {
          this.#isAbsent(kind);
          health.dismissed();
        },
      },
    });
    const run = reflector.run(controller.signal);
    this.#followers.set(kind, {
      reflector,
      stop: async () => {
        controller.abort(new Error('stopped'));
        await run;
        health.dismissed();
      },
    });
  }

  #hasListed(kind: Kind): void {
    this.#listed.add(kind);
    if (kind === 'EndpointSlice') this.#leaveEndpoints();
    const isComplete =
      this.#listed.has('Service') && (this.#listed.has('EndpointSlice') || this.#listed.has('Endpoints'));
    if (this.#isSynced || !isComplete) return;
    this.#isSynced = true;
    this.#options.log.info('The first lists from the API server are complete');
    this.#sink?.synced();
  }

  /** Only slices may be absent, on servers before 1.21. */
  #isAbsent(kind: Kind): void {
    if (kind !== 'EndpointSlice' || this.#followers.has('Endpoints')) return;
    this.#options.log.info('The API server has no EndpointSlices (discovery.k8s.io/v1); Endpoints are watched instead');
    this.#follow('Endpoints');
  }

  /** A newer server has replaced the old one, and its slices are listed. */
  #leaveEndpoints(): void {
    const follower = this.#followers.get('Endpoints');
    if (follower === undefined) return;
    this.#followers.delete('Endpoints');
    this.#options.log.info('The API server has EndpointSlices now; Endpoints are no longer watched');
    // Aborted at once, and never rejects: it delivers nothing after its objects are removed.
    void follower.stop();
    this.#sink?.apply(
      [...follower.reflector.objects.keys()].map((key) => toEvent('Endpoints', { key, value: undefined })),
    );
  }
}

function toEvent(kind: Kind, { key, value }: Change<KubernetesObject>): SourceEvent {
  // The key comes from `objectIdentity`, which has validated both halves.
  return value ?? { kind, key: key as ServiceKey, value: undefined };
}

/** What upstream watches, for endpoints too: their controllers copy these labels (`cmd/kube-proxy/app/server.go`). */
const LABEL_SELECTOR = '!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name';

const PATHS: Readonly<Record<Kind, string>> = {
  Service: '/api/v1/services',
  EndpointSlice: '/apis/discovery.k8s.io/v1/endpointslices',
  Endpoints: '/api/v1/endpoints',
};

/** The objects of one kind in all namespaces. */
export function resourceOf(kind: Kind): Resource<KubernetesObject> {
  return {
    kind,
    path: PATHS[kind],
    selectors: { labelSelector: LABEL_SELECTOR },
    absentAt: kind === 'EndpointSlice' ? [404] : [],
    identify: (object) => {
      // Items of a list do not have a kind.
      const identity = objectIdentity(object, kind);
      if (identity?.kind !== kind) throw new FieldError({ field: 'kind', found: `is not ${kind}` });
      return identity.key;
    },
    decode: (object) => decodeObject(object, kind),
  };
}
