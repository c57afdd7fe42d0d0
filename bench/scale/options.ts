import { parseArgs } from 'node:util';
import type { Flavour } from '../../test/netns/iptables.ts';
import type { Effort } from './measure.ts';

export interface ScaleOptions extends Effort {
  /** In growing order. */
  readonly services: readonly number[];
  readonly flavours: readonly Flavour[];
  readonly source: 'api' | 'manifests';
  /** File for the raw data. */
  readonly json: string | undefined;
}

export const USAGE = `Usage: scripts/bench scale [flags]

Measures the control plane with many Services: first sync, changes, repair, memory, and what a change costs.

  --services A,B       numbers of Services (100,1000,5000,10000)
  --flavours A,B       of nft, legacy (both)
  --source api|manifests
                       a real etcd and kube-apiserver, or files (api)
  --quick              100 and 1000 Services, fewer samples
  --json FILE          writes all results
  --help`;

const FLAVOURS: readonly Flavour[] = ['nft', 'legacy'];
const FULL = { services: '100,1000,5000,10000', samples: 50, churnSeconds: 10, connections: 1_000 };
const QUICK = { services: '100,1000', samples: 10, churnSeconds: 3, connections: 200 };

/** `undefined` when help is asked for. Throws an Error with a sentence for the user. */
export function parseOptions(args: readonly string[]): ScaleOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      services: { type: 'string' },
      flavours: { type: 'string', default: FLAVOURS.join() },
      source: { type: 'string', default: 'api' },
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
  const services = (values.services ?? usual.services).split(',').map(count);
  return {
    samples,
    churnSeconds,
    connections,
    services: services.sort((a, b) => a - b),
    flavours: flavours(values.flavours),
    source,
    json: values.json,
  };
}

/** Beyond 50,000 there are no more addresses: the changes need some, too. */
const MAX_SERVICES = 50_000;

function count(text: string): number {
  const number = /^\d{1,8}$/.test(text) ? Number(text) : Number.NaN;
  if (number >= 1 && number <= MAX_SERVICES) return number;
  throw new Error(`--services takes whole numbers from 1 to ${MAX_SERVICES}, not "${text}"`);
}

function flavours(text: string): readonly Flavour[] {
  const wanted = text.split(',');
  const unknown = wanted.find((name) => !FLAVOURS.includes(name as Flavour));
  if (unknown !== undefined) throw new Error(`--flavours knows no "${unknown}"; it knows ${FLAVOURS.join(', ')}`);
  return FLAVOURS.filter((name) => wanted.includes(name));
}
