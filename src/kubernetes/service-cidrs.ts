import { type Cidr, specialRangeWithin } from '../model/address.ts';
import { Field } from '../util/untrusted.ts';
import { type Decoded, decoding } from './objects/decoded.ts';
import { cidr, dnsSubdomain } from './objects/fields.ts';
import { Reflector, type ReflectorOptions, type Resource } from './reflector.ts';

/**
 * Watches the blocks that cluster IPs come from (ServiceCIDR, KEP-1880), and reports them as often as they change: none
 * where the server has no such objects or does not show them. Resolves only after the abort; never rejects.
 */
export async function watchServiceCidrs({
  onChange,
  signal,
  ...options
}: Omit<ReflectorOptions<readonly Cidr[]>, 'resource' | 'sink'> & {
  readonly onChange: (blocks: readonly Cidr[]) => void;
  readonly signal: AbortSignal;
}): Promise<void> {
  const byName = new Map<string, readonly Cidr[]>();
  const reflector = new Reflector<readonly Cidr[]>({
    ...options,
    resource: SERVICE_CIDRS,
    sink: {
      changed: (changes) => {
        for (const { key, value } of changes) {
          if (value === undefined) byName.delete(key);
          else byName.set(key, value);
        }
        onChange([...byName.values()].flat());
      },
      absent: () => onChange([]),
    },
  });
  await reflector.run(signal);
}

const KIND = 'ServiceCIDR';

const SERVICE_CIDRS: Resource<readonly Cidr[]> = {
  kind: KIND,
  path: '/apis/networking.k8s.io/v1/servicecidrs',
  selectors: {},
  // The role `system:node-proxier` of older releases does not have them.
  absentAt: [403, 404],
  identify: (object) => dnsSubdomain(Field.root(object).get('metadata').get('name')),
  decode: decodeServiceCidr,
};

export function decodeServiceCidr(object: unknown): Decoded<readonly Cidr[]> {
  return decoding(() => Field.root(object).get('spec').get('cidrs').items().map(block));
}

/** One object with all blocks, that {@link decodeServiceCidr} reads. */
export function encodeServiceCidr(blocks: readonly Cidr[]): object {
  const cidrs = blocks.map(({ network, prefixLength }) => `${network}/${prefixLength}`);
  return { apiVersion: 'networking.k8s.io/v1', kind: KIND, metadata: { name: 'kubernetes' }, spec: { cidrs } };
}

function block(field: Field): Cidr {
  const read = cidr(field);
  const special = specialRangeWithin(read);
  if (special !== undefined) throw field.wrong(`it overlaps ${special.range} (${special.reason})`);
  return read;
}
