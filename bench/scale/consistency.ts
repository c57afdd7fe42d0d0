import { waitFor } from '../../test/netns/wait.ts';
import type { Churn } from './churn.ts';
import type { Means, ScaleNode } from './scale-node.ts';

const CATCH_UP_MS = 120_000;

/** The API server's own Service, which it makes by itself. */
const FOREIGN = '10.96.0.1';

/**
 * Until the kernel has a rule for every Service in the store and for no other; no change may be on its way. Gives the
 * local port that each address leads to, in the order of the rules.
 */
export async function allHaveRules({
  node,
  churn,
  means,
}: {
  readonly node: Pick<ScaleNode, 'redirected'>;
  readonly churn: Pick<Churn, 'services'>;
  readonly means: Means;
}): Promise<ReadonlyMap<string, number>> {
  const wanted = new Set(churn.services.map(({ clusterIP }) => clusterIP));
  let difference = '';
  const equal = async () => {
    const redirected = await node.redirected(means);
    const missing = [...wanted].filter((address) => !redirected.has(address)).length;
    const stale = [...redirected.keys()].filter((address) => !wanted.has(address) && address !== FOREIGN).length;
    difference = `${missing} rules are missing, ${stale} are stale`;
    return missing === 0 && stale === 0 ? redirected : undefined;
  };
  return await waitFor('rules for every Service', equal, CATCH_UP_MS).catch((error: Error) => {
    throw new Error(`${error.message}: ${difference}`);
  });
}
