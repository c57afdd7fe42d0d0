import { readStatus } from '../../kubernetes/api-error.ts';
import type { Kind } from '../../kubernetes/objects/kubernetes-object.ts';
import { resourceOf } from '../../kubernetes/resources.ts';
import { messageOf } from '../../util/text.ts';
import type { ApiAnswer, AskApi } from './api-connection.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

const ROLE = 'bind the ClusterRole system:node-proxier to the user of these credentials';

/** What a `SelfSubjectAccessReview` is asked; events are written to many namespaces. */
interface Right {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  /** What is not done without it; `undefined` when nothing is. */
  readonly without: string | undefined;
}

const NODE = 'zone, deletion and taints of this node are not noticed';
const RIGHTS: readonly Right[] = [
  { verb: 'watch', group: '', resource: 'services', without: undefined },
  { verb: 'watch', group: 'discovery.k8s.io', resource: 'endpointslices', without: undefined },
  { verb: 'list', group: '', resource: 'nodes', without: NODE },
  { verb: 'watch', group: '', resource: 'nodes', without: NODE },
  { verb: 'create', group: '', resource: 'events', without: 'Services that are not served get no event that says so' },
];

/**
 * Whether the credentials may do what the proxy does. Lists are tried, one object of each; for the rest the server is
 * asked what it would say, which writes nothing.
 */
export async function checkPermissions({
  ask,
  nodeName,
}: {
  readonly ask: AskApi;
  readonly nodeName: string;
}): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  try {
    // Each as soon as it is there: the next question may get no answer.
    const add = (some: readonly Finding[]) => findings.push(...some);
    const services = await listing(ask, 'Service');
    add(services.findings);
    const slices = await listing(ask, 'EndpointSlice');
    add(slices.findings);
    const isOld = slices.status === 404;
    if (isOld) add((await listing(ask, 'Endpoints')).findings);
    const rights = RIGHTS.map((right) =>
      isOld && right.resource === 'endpointslices' ? { ...right, group: '', resource: 'endpoints' } : right,
    );
    add(await reviews(ask, rights));
    add(await ownNode(ask, nodeName));
    if (findings.length > 0) return findings;
    return [
      ok(
        `may list and watch Services and ${isOld ? 'Endpoints' : 'EndpointSlices'}, follow its Node ${nodeName} and write events`,
      ),
    ];
  } catch (error) {
    // One that gives no answer has none to the next question either, and each wait takes seconds.
    return [...findings, fail(`the server was asked for permissions: ${messageOf(error)}`, UNWELL)];
  }
}

interface Listing {
  readonly status: number;
  /** What is wrong with it; a missing kind is nothing, where another takes its place. */
  readonly findings: readonly Finding[];
}

async function listing(ask: AskApi, kind: Kind): Promise<Listing> {
  const { path, isOptional } = resourceOf(kind);
  const answer = await ask(`${path}?limit=1`);
  const { status } = answer;
  if (status === 200 || (status === 404 && isOptional)) return { status, findings: [] };
  const cure = cureOf(status, 'check that this is the API server of a cluster');
  return { status, findings: [fail(`${kind} objects cannot be listed: ${said(answer)}`, cure)] };
}

const UNWELL = 'see that the API server is well';

function cureOf(status: number, otherwise: string): string {
  if (status === 403) return ROLE;
  return status === 429 || status >= 500 ? UNWELL : otherwise;
}

async function reviews(ask: AskApi, rights: readonly Right[]): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const { verb, group, resource, without } of rights) {
    const right = `${verb} ${group === '' ? resource : `${resource}.${group}`}`;
    const answer = await ask('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', {
      apiVersion: 'authorization.k8s.io/v1',
      kind: 'SelfSubjectAccessReview',
      spec: { resourceAttributes: { verb, group, resource } },
    });
    const allowed = allowedIn(answer);
    if (allowed === undefined) {
      return [
        ...findings,
        warn(
          `the server does not say what these credentials may do beside that: ${said(answer)}`,
          answer.status >= 500 ? UNWELL : `make sure of it: ${ROLE}`,
        ),
      ];
    }
    if (!allowed) {
      findings.push(
        without === undefined
          ? fail(`these credentials may not ${right}, so no change would be seen`, ROLE)
          : warn(`these credentials may not ${right}: ${without}`, ROLE),
      );
    }
  }
  return findings;
}

async function ownNode(ask: AskApi, name: string): Promise<readonly Finding[]> {
  const answer = await ask(`/api/v1/nodes/${encodeURIComponent(name)}`);
  switch (answer.status) {
    case 200:
      return [];
    case 404:
      return [
        warn(
          `the cluster has no Node ${name}: policies Local and topology would find no endpoint on this node`,
          'give its name to --hostname-override, or wait until the kubelet has registered it',
        ),
      ];
    default:
      return [warn(`the Node ${name} cannot be read: ${said(answer)}`, cureOf(answer.status, ROLE))];
  }
}

/** `undefined` when the answer is none. */
function allowedIn({ status, body }: ApiAnswer): boolean | undefined {
  if (status !== 200 && status !== 201) return undefined;
  const { status: review } = (body ?? {}) as { readonly status?: { readonly allowed?: unknown } };
  return typeof review?.allowed === 'boolean' ? review.allowed : undefined;
}

function said({ status, body }: ApiAnswer): string {
  const { message } = readStatus(body);
  return message === undefined ? `HTTP ${status}` : `HTTP ${status}, ${message}`;
}
