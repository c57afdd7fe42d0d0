import { parseArgs } from 'node:util';
import type { Effort } from './measure.ts';
import type { Means } from './scale-node.ts';

export interface ScaleOptions extends Effort {
  /** In growing order. */
  readonly services: readonly number[];
  readonly captures: readonly Means[];
  readonly source: 'api' | 'manifests';
  /** That have the Services among them; `undefined`: a file for each. */
  readonly files: number | undefined;
  /** File for the raw data. */
  readonly json: string | undefined;
}

export const USAGE = `Usage: scripts/bench scale [flags]

Measures the control plane with many Services: first sync, changes, repair, memory, and what a change costs.

  --services A,B       numbers of Services (100,1000,5000,10000)
  --capture A,B        of nft, iptables-nft and iptables-legacy (all)
  --source api|manifests
                       a real etcd and kube-apiserver, or files (api)
  --files N            so many files in place of one for each Service; fewer changes, as each writes a whole file
  --quick              100 and 1000 Services, fewer samples
  --json FILE          writes all results
  --help`;

const CAPTURES: readonly Means[] = ['nft', 'iptables-nft', 'iptables-legacy'];
/** A change in the background writes a whole file, which has to come to rest. */
const FEW_FILES = { churnPerSecond: 5, besidesPerSecond: 0 };
const MANY_FILES = { churnPerSecond: 50, besidesPerSecond: 50 };
const FULL = { services: '100,1000,5000,10000', samples: 50, churnSeconds: 10, connections: 1_000 };
const QUICK = { services: '100,1000', samples: 10, churnSeconds: 3, connections: 200 };

/** `undefined` when help is asked for. Throws an Error with a sentence for the user. */
export function parseOptions(args: readonly string[]): ScaleOptions | undefined {
  const { values } = parseArgs({
    args: [...args],
    options: {
      services: { type: 'string' },
      capture: { type: 'string', default: CAPTURES.join() },
      source: { type: 'string', default: 'api' },
      files: { type: 'string' },
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
  const files = values.files === undefined ? undefined : count(values.files, '--files');
  if (files !== undefined && source !== 'manifests') throw new Error('--files needs --source manifests');
  const { churnPerSecond, besidesPerSecond } = files === undefined ? MANY_FILES : FEW_FILES;
  const services = (values.services ?? usual.services).split(',').map((text) => count(text, '--services'));
  return {
    samples,
    churnSeconds,
    churnPerSecond,
    besidesPerSecond,
    connections,
    services: services.sort((a, b) => a - b),
    captures: captures(values.capture),
    source,
    files,
    json: values.json,
  };
}

/** Beyond 50,000 there are no more addresses: the changes need some, too. */
const MAX_SERVICES = 50_000;

function count(text: string, flag: '--services' | '--files'): number {
  const number = /^\d{1,8}$/.test(text) ? Number(text) : Number.NaN;
  if (number >= 1 && number <= MAX_SERVICES) return number;
  throw new Error(`${flag} takes whole numbers from 1 to ${MAX_SERVICES}, not "${text}"`);
}

function captures(text: string): readonly Means[] {
  const wanted = text.split(',');
  const unknown = wanted.find((name) => !CAPTURES.includes(name as Means));
  if (unknown !== undefined) throw new Error(`--capture knows no "${unknown}"; it knows ${CAPTURES.join(', ')}`);
  return CAPTURES.filter((name) => wanted.includes(name));
}
