import { UsageError } from '../config/usage-error.ts';
import { DEFAULT_CONTROL_SOCKET } from '../config/values.ts';
import { type Endpoint, endpointOf } from '../model/endpoint.ts';
import { findingText } from '../model/finding.ts';
import { type NodeView, type ServiceFilter, type ServiceView, servingStateOf } from '../model/view.ts';
import type { CommandName, Commands, Control } from '../operate/control/protocol.ts';
import { foundText } from '../util/found.ts';
import type { Terminal, Tools } from './command.ts';
import { oneColumnEach, shortDuration } from './format.ts';

export const CONTROL_SOCKET = {
  'control-socket': {
    type: 'string',
    nargs: 1,
    default: DEFAULT_CONTROL_SOCKET,
    describe: 'control socket of the running proxy',
  },
} as const;

export const JSON_OUTPUT = {
  output: { alias: 'o', nargs: 1, choices: ['json'], describe: 'print JSON instead of text' },
} as const;

export function textOrJson(describe: string) {
  return { output: { alias: 'o', nargs: 1, choices: ['text', 'json'], default: 'text', describe } } as const;
}

/** Resolves as `work` does, or with 0 on Ctrl-C, which waits for no answer of the proxy. */
export async function untilInterrupted(
  { onInterrupt }: Pick<Tools, 'onInterrupt'>,
  work: (signal: AbortSignal) => Promise<number>,
): Promise<number> {
  const interrupted = new AbortController();
  const isOver = new Promise<number>((resolve) => {
    interrupted.signal.addEventListener('abort', () => resolve(0));
  });
  const stopListening = onInterrupt(() => interrupted.abort());
  return await Promise.race([isOver, work(interrupted.signal)]).finally(stopListening);
}

/** Reads what the user has typed, after this flag. */
export function typed<T>(text: string, read: (text: string) => T, flag = ''): T {
  try {
    return read(text);
  } catch (error) {
    throw error instanceof UsageError ? new UsageError(`${flag}${JSON.stringify(text)}: ${error.message}`) : error;
  }
}

/** `IP:PORT`, an IPv6 address in brackets. Throws {@link UsageError} with a sentence. */
export function parseEndpoint(text: string): Endpoint {
  const endpoint = endpointOf(text);
  if (endpoint !== undefined) return endpoint;
  throw new UsageError(
    `${JSON.stringify(text)}: not an address with a port; write it as the lists do, ` +
      'such as 10.244.1.7:8080 or [fd00::7]:8080',
  );
}

/** For commands whose answer is one piece. */
export async function askOne<C extends CommandName>(
  control: Control,
  command: C,
  params: Commands[C]['params'],
): Promise<Commands[C]['piece']> {
  let answer: Commands[C]['piece'] | undefined;
  for await (const piece of control.ask(command, params)) answer = piece;
  if (answer === undefined) throw new Error('the proxy gave no answer');
  return answer;
}

export async function* servicesOf(control: Control, filter: ServiceFilter): AsyncGenerator<ServiceView> {
  for await (const piece of control.ask('services', filter)) yield* piece;
}

/** Warns on stderr, where scripts do not read, that the printed state may be out of date. */
export function warnOfCaveats(node: NodeView, terminal: Pick<Terminal, 'err'>): void {
  for (const caveat of caveatsOf(node)) terminal.err(`Warning: ${caveat}.\n`);
}

/** What is wrong beside Services, a line each. */
export function problemsOf({ findings = [] }: NodeView): string[] {
  return findings.map((finding) => {
    const { advice } = finding;
    const problem = foundText({ found: findingText(finding), ...(advice !== undefined && { advice }) });
    return `Problem: ${oneColumnEach(problem)}.`;
  });
}

function stateOf({ servedStateOf }: NonNullable<NodeView['api']>): string {
  return servedStateOf === undefined ? '' : ` (${servingStateOf(servedStateOf)})`;
}

export function caveatsOf({ api, families }: NodeView): string[] {
  const away =
    api === undefined || api.connected
      ? []
      : [
          `the API server has not answered for ${shortDuration(api.staleForMs)}, so changes may be missing${stateOf(api)}`,
        ];
  const rules = families.flatMap(({ family, lastSync }) => {
    if (lastSync === undefined) return [`the rules of ${family} have not been synced since the start`];
    return lastSync.err === undefined
      ? []
      : [`the rules of ${family} cannot be synced: ${oneColumnEach(lastSync.err)}`];
  });
  return [...away, ...rules];
}
