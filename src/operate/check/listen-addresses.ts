import { type Endpoint, endpointName } from '../../model/endpoint.ts';
import { type Finding, fail, ok, warn } from './finding.ts';
import { type HostProcess, isThisProgram } from './host-process.ts';

/** `taken`: by this process if it can be seen. */
export type BindOutcome =
  | { readonly outcome: 'free' }
  | { readonly outcome: 'taken'; readonly by: HostProcess | undefined }
  | { readonly outcome: 'failed'; readonly err: string };

export interface ListenAddressFacts {
  /** "healthz", "metrics". */
  readonly server: string;
  readonly at: Endpoint;
  /** `--bind-address-hard-fail` */
  readonly isHard: boolean;
  /** Listens there for a moment. */
  readonly tryToBind: (at: Endpoint) => Promise<BindOutcome>;
}

export async function checkListenAddress({
  server,
  at,
  isHard,
  tryToBind,
}: ListenAddressFacts): Promise<readonly Finding[]> {
  const what = `the ${server} address ${endpointName(at)}`;
  const tried = await tryToBind(at);
  // Without the flag, the proxy serves Services all the same, and tries again.
  const bad = isHard ? fail : warn;
  const advice = `give --${server}-bind-address another one`;
  switch (tried.outcome) {
    case 'free':
      return [ok(`${what} is free`)];
    case 'failed':
      return [bad(`${what} cannot be listened on: ${tried.err}`, advice)];
    case 'taken': {
      const { by } = tried;
      if (by === undefined)
        return [bad(`${what} is taken by a program that cannot be seen from here`, `stop that, or ${advice}`)];
      if (isThisProgram(by)) return [ok(`${what} is served by the proxy that runs here (process ${by.pid})`)];
      return [bad(`${what} is taken by ${by.name} (process ${by.pid})`, `stop that, or ${advice}`)];
    }
  }
}
