import { familyOf, type IpFamily } from '../model/address.ts';
import type { EndpointGroup } from '../model/endpoint.ts';
import { partsOf, type ServicePortName, type ServicePortSpec } from '../model/service.ts';
import type { NoEndpoints } from '../model/view.ts';
import { listed } from '../util/text.ts';
import type { EndpointVerdict } from './derive-service-ports.ts';

interface NoEndpointsFacts {
  readonly name: ServicePortName;
  readonly spec: ServicePortSpec;
  readonly family: IpFamily;
  /** The Service is marked as one that something has scaled to zero. */
  readonly isIdled: boolean;
  /** Of the Service. Absent when it has neither slices nor Endpoints. */
  readonly groups: readonly EndpointGroup[] | undefined;
  /** None of them may serve. */
  readonly verdicts: readonly EndpointVerdict[];
  /** Where endpoints are for a Service of the same name that is not there. */
  readonly otherNamespaces: () => readonly string[];
}

/** Whoever writes Services and endpoints chooses how many there are. */
const MAX_LISTED = 3;

/** Why no endpoint of a Service port may serve: the first obstacle on the way from the objects to an endpoint. */
export function whyNoEndpoints({
  name,
  spec,
  family,
  isIdled,
  groups,
  verdicts,
  otherNamespaces,
}: NoEndpointsFacts): NoEndpoints {
  if (verdicts.length > 0) return noneMayServe(verdicts);
  const { namespace, service } = partsOf(name);
  if (groups === undefined) {
    const others = otherNamespaces();
    if (others.length === 0) {
      const message = `no EndpointSlice or Endpoints object in namespace ${namespace} is for ${service}`;
      return { reason: 'NoObjects', message };
    }
    const message = `its endpoints are in namespace ${listed(others, MAX_LISTED)}, and the Service is in ${namespace}`;
    return { reason: 'OtherNamespace', message };
  }
  const used = groups.filter(({ addresses }) => addresses.length > 0);
  if (used.length === 0) {
    const message = isIdled
      ? 'it has no endpoints: it was scaled to zero, as its annotation …/idled-at says'
      : 'it has no endpoints; check that its selector matches the labels of Pods';
    return { reason: 'NoAddresses', message };
  }
  const ofFamily = used.filter(({ addresses }) => addresses.some(({ address }) => familyOf(address) === family));
  if (ofFamily.length === 0)
    return { reason: 'OtherFamily', message: `none of its endpoints has an ${family} address` };
  const ports = new Set(ofFamily.flatMap((group) => group.ports.map(described)));
  const theirs = ports.size === 0 ? 'no port' : `port ${listed([...ports], MAX_LISTED)}`;
  return { reason: 'OtherPort', message: `its endpoints have ${theirs}, and the Service wants ${described(spec)}` };
}

function noneMayServe(verdicts: readonly EndpointVerdict[]): NoEndpoints {
  const byReason = Map.groupBy(verdicts, ({ reason }) => reason);
  const count = verdicts.length;
  if (byReason.has('not ready') && byReason.size === 1) {
    const message = count === 1 ? 'its only endpoint is not ready' : `all ${count} endpoints are not ready`;
    return { reason: 'NotReady', message };
  }
  const reasons = [...byReason].map(([reason, { length }]) => `${reason} (${length})`);
  return { reason: 'NoneMayServe', message: `none of its ${count} endpoints may serve: ${reasons.join(', ')}` };
}

/** Quoted, because the unnamed port has an empty name. */
function described({ name, protocol }: Pick<ServicePortSpec, 'name' | 'protocol'>): string {
  return `"${name}" (${protocol})`;
}
