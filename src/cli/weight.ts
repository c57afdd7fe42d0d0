import { UsageError } from '../config/usage-error.ts';
import { endpointName } from '../model/endpoint.ts';
import { MAX_WEIGHT } from '../model/scheduler.ts';
import { command } from './command.ts';
import { askOne, CONTROL_SOCKET, parseEndpoint } from './shared.ts';

/** Takes back what was set. */
const DEFAULT = 'default';

export const WEIGHT = command({
  name: 'weight',
  summary: 'give an endpoint another weight on this node, in every Service; 0 is drain',
  argument: 'IP:PORT WEIGHT',
  completes: ['endpoints'],
  options: CONTROL_SOCKET,
  examples: [
    ['weight 10.244.1.7:8080 5', 'five times the share of an endpoint with the weight 1, until a restart of the proxy'],
    ['weight 10.244.1.7:8080 default', 'the weight that its EndpointSlice says, or 1'],
  ],
  run: async ({ argument, 'control-socket': socket }, terminal, { connect }) => {
    const [text = '', wanted = ''] = argument.split(' ');
    const endpoint = parseEndpoint(text);
    const weight = weightOf(wanted);
    await askOne(connect(socket), 'weight', { endpoint, weight: weight ?? DEFAULT });
    terminal.out(`${endpointName(endpoint)} ${saying(weight)}\n`);
    return 0;
  },
});

function weightOf(text: string): number | undefined {
  if (text === DEFAULT) return undefined;
  const weight = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (weight <= MAX_WEIGHT) return weight;
  throw new UsageError(`${JSON.stringify(text)}: a weight is a whole number from 0 to ${MAX_WEIGHT}, or ${DEFAULT}`);
}

function saying(weight: number | undefined): string {
  if (weight === undefined) return 'has its own weight again.';
  if (weight === 0) return 'is drained on this node.';
  return `has the weight ${weight} on this node, in every Service; schedulers without weights ignore it.`;
}
