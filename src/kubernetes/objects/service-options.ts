import type { ServiceOptions, ServicePortSpec } from '../../model/service.ts';
import type { Field } from '../../util/untrusted.ts';
import type { Warnings } from './decoded.ts';

const PREFIX = 'kube-userspace-proxy/';

/** A wrong value is left out with a warning, and the node's default serves. `undefined` when nothing is asked for. */
export function decodeServiceOptions(
  service: Field,
  ports: readonly ServicePortSpec[],
  warnings: Warnings,
): ServiceOptions | undefined {
  const annotations = service.get('metadata').get('annotations');
  if (!annotations.isPresent) return undefined;
  const choice = <const T extends string>(name: string, choices: readonly T[]): T | undefined => {
    const field = annotations.get(PREFIX + name);
    return field.isPresent ? warnings.optional(() => field.oneOf(choices)) : undefined;
  };
  const clientAddress = choice('client-address', ['preserve', 'node']);
  const proxyProtocol = choice('proxy-protocol', ['v1', 'v2']);
  if (proxyProtocol !== undefined && ports.some(({ protocol }) => protocol === 'UDP')) {
    const problem = 'has no effect on UDP ports: only a TCP connection can begin with a header';
    warnings.add(annotations.get(`${PREFIX}proxy-protocol`).error(problem).problem);
  }
  const options: ServiceOptions = {
    ...(clientAddress !== undefined && { clientAddress }),
    ...(proxyProtocol !== undefined && { proxyProtocol }),
  };
  return Object.keys(options).length === 0 ? undefined : options;
}
