import { parseArgs } from 'node:util';
import type { Flavour } from '../../test/netns/iptables.ts';
import type { Effort } from './measure.ts';

export interface ScaleOptions extends Effort {
  /** In growing order. */
  readonly services: readonly number[];
  readonly flavours: readonly Flavour[];
  readonly source: 'api' | 'manifests';
  /** Changes of the soak; 0 for none. */
  readonly soak: number;
  /** File for the raw data. */
  readonly json: string | undefined;
}

export const USAGE = `Usage: scripts/bench scale [flags]

Measures the control plane with many Services: first sync, changes, repair, memory, and what a change costs.

  --services A,B       numbers of Services (100,1000,5000,10000)
  --flavours A,B       of nft, legacy (both)
  --source api|manifests
                       a real etcd and kube-apiserver, or files (api)
  --soak N             random changes at the end, with the largest number of Services (100000)
  --quick              100 and 1000 Services, fewer samples, a soak of 2000
  --json FILE          writes all results
  --help`;

const FLAVOURS: readonly Flavour[] = ['nft', 'legacy'];
const FULL = { services: '100,1000,5000,10000', soak: '100000', samples: 50, churnSeconds: 10, connections: 1_000 };
const QUICK = { services: '100,1000', soak: '2000', samples: 10, churnSeconds: 3, connections: 200 };

/** `undefined` when help is asked for. Throws an Error with a sentence for the user. */
export function parseOptions(args: readonly string[]): ScaleOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      services: { type: 'string' },
      flavours: { type: 'string', default: FLAVOURS.join() },
      source: { type: 'string', default: 'api' },
      soak: { type: 'string' },
      quick: { type: 'boolean', default: false },
      json: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return undefined;
  const usual = values.quick ? QUICK : FULL;
  const { samples, churnSeconds, connections } = usual;
  const { source } = values;
  if (source !== 'api' && source !== 'manifests') throw new Error(`--source takes api or manifests, not "${source}"`);
  const services = (values.services ?? usual.services).split(',').map((text) => count('--services', text, 1));
  return {
    samples,
    churnSeconds,
    connections,
    services: services.sort((a, b) => a - b),
    flavours: flavours(values.flavours),
    source,
    soak: count('--soak', values.soak ?? usual.soak, 0),
    json: values.json,
  };
}

/** Beyond 50,000 there are no more addresses: the changes need some, too. */
const MAX_SERVICES = 50_000;
const MAX_SOAK = 10_000_000;

function count(flag: string, text: string, least: 0 | 1): number {
  const most = least === 1 ? MAX_SERVICES : MAX_SOAK;
  const number = /^\d{1,8}$/.test(text) ? Number(text) : Number.NaN;
  if (number >= least && number <= most) return number;
  throw new Error(`${flag} takes whole numbers from ${least} to ${most}, not "${text}"`);
}

function flavours(text: string): readonly Flavour[] {
  const wanted = text.split(',');
  const unknown = wanted.find((name) => !FLAVOURS.includes(name as Flavour));
  if (unknown !== undefined) throw new Error(`--flavours knows no "${unknown}"; it knows ${FLAVOURS.join(', ')}`);
  return FLAVOURS.filter((name) => wanted.includes(name));
}
