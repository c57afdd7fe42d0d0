import { decodeObject, type Kind, type KubernetesObject, objectIdentity } from './objects/kubernetes-object.ts';
import type { Resource } from './reflector.ts';

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
    isOptional: kind === 'EndpointSlice',
    identify: (object) => {
      // Items of a list do not say what they are.
      const identity = objectIdentity(object, kind);
      switch (identity.status) {
        case 'known':
          if (identity.kind === kind) return { key: identity.key };
          break;
        case 'unknown':
          return { problem: identity.problem };
      }
      return { problem: { field: 'kind', problem: `is not ${kind}` } };
    },
    decode: (object) => decodeObject(object, kind),
  };
}
