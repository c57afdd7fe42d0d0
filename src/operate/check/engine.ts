import { messageOf } from '../../util/text.ts';
import { counted } from './counted.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

export interface EngineFacts {
  readonly engine: 'auto' | 'fast' | 'node';
  readonly workers: number;
  readonly cores: number;
  /** Rejects when the fast engine cannot run here. */
  readonly selfCheck: () => Promise<void>;
}

export async function checkEngine({ engine, workers, cores, selfCheck }: EngineFacts): Promise<readonly Finding[]> {
  if (engine === 'node') return [ok('the portable engine, as --dataplane says')];
  try {
    await selfCheck();
  } catch (error) {
    const found = `the fast engine cannot run here: ${messageOf(error)}`;
    return [
      engine === 'fast'
        ? fail(found, 'use --dataplane auto or node')
        : warn(
            `${found}; the portable one will carry the traffic`,
            'mend that, or expect less throughput; the fast one needs Linux on x64 or arm64',
          ),
    ];
  }
  if (workers > cores) {
    return [
      warn(
        `the fast engine can run here, but ${workers} workers share ${cores} cores`,
        'set --workers to at most the number of cores, or leave it away',
      ),
    ];
  }
  return [ok(`the fast engine can run here, with ${counted(workers, 'worker')} on ${cores} cores`)];
}
