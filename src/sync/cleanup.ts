import type { CaptureMethod } from '../capture/method.ts';
import { FAMILIES, type IpFamily } from '../model/address.ts';
import type { Conntrack } from '../model/conntrack.ts';
import type { Log } from '../util/log.ts';
import { messageOf } from '../util/text.ts';

interface CleanupOptions {
  readonly methods: readonly CaptureMethod[];
  readonly conntrack: Pick<Conntrack, 'deleteTo' | 'deleteMarked'>;
  /** Of the proxy's own connections. */
  readonly connectionMark: number;
  readonly log: Log;
}

/**
 * Removes every trace of the proxy, and of kube-proxy, from the kernel: what captures packets in both families, the
 * entries of connection tracking for UDP to its local ports, and all with its mark. Logs failures, continues, and
 * resolves with their number.
 */
export async function cleanUp({ methods, conntrack, connectionMark, log }: CleanupOptions): Promise<number> {
  const udpPorts = new Set<number>();
  let failures = 0;

  async function clean(method: CaptureMethod, family: IpFamily): Promise<void> {
    const fields = { family, method: method.description };
    try {
      const ports = await method.remove(family, { kubeProxys: true });
      if (ports !== undefined) log.info('Removed the rules of the proxy', fields);
      for (const { protocol, localPort } of ports ?? []) if (protocol === 'UDP') udpPorts.add(localPort);
    } catch (error) {
      failures++;
      log.error('Cannot remove the rules of the proxy', { ...fields, err: messageOf(error) });
    }
  }

  for (const method of methods) for (const family of FAMILIES) await clean(method, family);
  try {
    const ofUdp = udpPorts.size === 0 ? 0 : await conntrack.deleteTo('UDP', udpPorts);
    const deleted = ofUdp + (await conntrack.deleteMarked(connectionMark));
    if (deleted > 0) log.info('Cleared entries of connection tracking', { deleted });
  } catch (error) {
    failures++;
    log.error('Cannot clear entries of connection tracking', { err: messageOf(error) });
  }
  return failures;
}
