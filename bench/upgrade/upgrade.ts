import type { ProxyProcess } from '../../test/netns/proxy.ts';
import { waitFor } from '../../test/netns/wait.ts';
import { isAlive } from '../../test/support/processes.ts';

/** Upgrades what `pid` has become of this proxy, and waits until the successor is alone. */
export async function upgrade(
  proxy: ProxyProcess,
  pid: number,
): Promise<{ readonly pid: number; readonly stillMs: unknown; readonly tookMs: number }> {
  const ends = () => proxy.log.filter(({ msg }) => /^(Handed over|Cannot hand over|Cannot upgrade)/.test(msg));
  const count = ends().length;
  // Until then it drops what asks it to upgrade.
  const starts = () => proxy.log.filter(({ msg }) => msg === 'Started').length;
  await waitFor('the running process is through with its own start', () => starts() > count);
  const begun = performance.now();
  process.kill(pid, 'SIGHUP');
  const line = await waitFor('the upgrade', () => ends()[count], 120_000);
  if (!line.msg.startsWith('Handed over')) throw new Error(JSON.stringify(line));
  await waitFor('the old process ends', () => !isAlive(pid));
  return { pid: Number(line['pid']), stillMs: line['ms'], tookMs: performance.now() - begun };
}
