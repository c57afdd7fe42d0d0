import { ApiError } from '../kubernetes/api-error.ts';
import { messageOf } from '../util/text.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/** The proxy's own API client, with a deadline for each request. Rejects with an {@link ApiError}. */
export interface Api {
  get(path: string): Promise<unknown>;
  post(path: string, body: unknown): Promise<unknown>;
}

export const UNWELL = 'check that the API server is healthy';
const OTHER_NAME = 'give its name to --hostname-override, or wait until the kubelet has registered it';
const ROLE = 'bind the ClusterRole system:node-proxier to the user of these credentials';

/** `without`: what the proxy lacks without this right. Absent: it cannot serve. */
interface Right {
  readonly verbs: readonly string[];
  readonly group: string;
  readonly resource: string;
  readonly without?: string;
}

const NODES = 'the proxy does not notice the zone, deletion and taints of this node';
const RIGHTS: readonly Right[] = [
  { verbs: ['list', 'watch'], group: '', resource: 'services' },
  { verbs: ['list', 'watch'], group: 'discovery.k8s.io', resource: 'endpointslices' },
  { verbs: ['list', 'watch'], group: '', resource: 'nodes', without: NODES },
  {
    verbs: ['create'],
    group: '',
    resource: 'events',
    without: 'Services that are not served get no event that says so',
  },
];

/** Whether the server grants the rights that the proxy needs. Asking writes nothing. */
export async function checkPermissions(api: Api, nodeName: string): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  let subject = 'the permissions';
  try {
    for (const { verbs, group, resource, without } of RIGHTS) {
      for (const verb of verbs) {
        if (await isAllowed(api, { verb, group, resource })) continue;
        const found = `these credentials may not ${verb} ${group === '' ? resource : `${resource}.${group}`}`;
        findings.push(without === undefined ? fail(found, ROLE) : warn(`${found}: ${without}`, ROLE));
      }
    }
    subject = `the Node ${nodeName}`;
    await api.get(`/api/v1/nodes/${encodeURIComponent(nodeName)}`);
  } catch (error) {
    // The next request would fail as well.
    findings.push(failure(subject, error));
  }
  if (findings.length > 0) return findings;
  return [ok(`may list and watch Services and EndpointSlices, watch its Node ${nodeName} and write events`)];
}

function failure(subject: string, error: unknown): Finding {
  const status = error instanceof ApiError ? error.status : undefined;
  if (status === 404 && subject.startsWith('the Node ')) {
    return warn(`the cluster does not have ${subject}, so policies Local find no endpoint here`, OTHER_NAME);
  }
  const found = `cannot ask for ${subject}: ${messageOf(error)}`;
  return status === undefined ? fail(found, UNWELL) : warn(found, status === 403 ? ROLE : UNWELL);
}

async function isAllowed(api: Api, resourceAttributes: object): Promise<boolean> {
  const review = (await api.post('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    spec: { resourceAttributes },
  })) as { readonly status?: { readonly allowed?: unknown } | null } | null;
  const allowed = review?.status?.allowed;
  if (typeof allowed !== 'boolean') throw new ApiError('garbage', 'the answer is not a SelfSubjectAccessReview');
  return allowed;
}
