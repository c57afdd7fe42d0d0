import { printable } from '../../util/text.ts';

/** How far the start has come, up to the first time that every rule is installed. */
export interface StartProgress {
  /** Since the start, in milliseconds. */
  readonly elapsedMs: number;
  /** Where Services come from; `undefined` with manifests. */
  readonly api: { readonly server: string; readonly hasAnswered: boolean } | undefined;
  /** Everything that exists has been delivered once. */
  readonly isSynced: boolean;
  /** Services that no listener has been asked for yet. */
  readonly pendingServices: number;
  /** Service ports that are to have a listener, and listeners that are open. */
  readonly wantedPorts: number;
  readonly openListeners: number;
  /** The rules of every family are installed. */
  readonly isReady: boolean;
}

/** One line for people. */
export function progressText(progress: StartProgress): string {
  const { elapsedMs, api, isSynced, pendingServices, wantedPorts, openListeners, isReady } = progress;
  if (isReady) return `Ready: ${counted(wantedPorts, 'Service port')} in ${(elapsedMs / 1_000).toFixed(1)} s`;
  const soFar = pendingServices === 0 ? '' : `, ${counted(pendingServices, 'Service')} so far`;
  const time = `(${Math.floor(elapsedMs / 1_000)} s)`;
  if (!isSynced) {
    if (api === undefined) return `Reading manifests${soFar} ${time}`;
    const server = printable(api.server);
    return api.hasAnswered
      ? `Listing Services from ${server}${soFar} ${time}`
      : `Waiting for the API server ${server} ${time}`;
  }
  const wanted = wantedPorts + pendingServices;
  if (openListeners < wanted) return `Opening listeners: ${grouped(openListeners)} of ${grouped(wanted)} ${time}`;
  return `Installing the rules of ${counted(wantedPorts, 'Service port')} ${time}`;
}

function counted(count: number, what: string): string {
  return `${grouped(count)} ${what}${count === 1 ? '' : 's'}`;
}

/** `10,000` */
function grouped(count: number): string {
  return count.toLocaleString('en-US');
}
