import { UsageError } from '../../config/usage-error.ts';
import { partsOf, type ServicePortName } from '../../model/service.ts';
import type { ServiceFilter } from '../../model/view.ts';

/** The requested Service ports. */
export interface Selection {
  readonly filter: ServiceFilter;
  /** A port's name or number. */
  readonly port?: string;
}

const ARGUMENT = /^([^/:]+)(?:\/([^/:]+)(?::([^/:]+))?)?$/;

/** Throws {@link UsageError}. */
export function selectionOf({
  argument,
  namespace,
  service,
}: {
  readonly argument: string;
  readonly namespace?: string | undefined;
  readonly service?: string | undefined;
}): Selection {
  const options = { ...(namespace !== undefined && { namespace }), ...(service !== undefined && { service }) };
  for (const [name, value] of Object.entries(options)) {
    if (value === '') throw new UsageError(`--${name} is empty; see --help`);
  }
  if (argument === '') return { filter: options };
  if (namespace !== undefined || service !== undefined) {
    throw new UsageError(`${JSON.stringify(argument)} beside --namespace or --service: give one or the other`);
  }
  const match = ARGUMENT.exec(argument);
  if (match === null) {
    throw new UsageError(
      `${JSON.stringify(argument)}: must be NAMESPACE, NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT, as in the lists; ` +
        'to look for an address use explain',
    );
  }
  const [, ofNamespace = '', ofService, port] = match;
  return {
    filter: { namespace: ofNamespace, ...(ofService !== undefined && { service: ofService }) },
    ...(port !== undefined && { port }),
  };
}

export const NO_MATCH = 'No Service that this node serves matches.';

/** Whether there is a filter or a port. */
export function isNarrowed({ filter, port }: Selection): boolean {
  return port !== undefined || Object.keys(filter).length > 0;
}

export function isSelected(
  { port }: Selection,
  view: { readonly name: ServicePortName; readonly port: number },
): boolean {
  return port === undefined || String(view.port) === port || partsOf(view.name).portName === port;
}
