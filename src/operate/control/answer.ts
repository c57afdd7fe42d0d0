import { endpointName } from '../../model/endpoint.ts';
import type { Operations } from '../../model/operations.ts';
import type { View } from '../../model/view.ts';
import type { Clock } from '../../util/clock.ts';
import type { Log } from '../../util/log.ts';
import { inPieces } from './pieces.ts';
import type { Commands, Request } from './protocol.ts';
import { RequestError } from './request.ts';

export interface Answerer {
  /** Whoever asks before waits for it: until then the answers would not be true. Never rejects. */
  readonly known?: Promise<void>;
  readonly view: View;
  readonly operations: Operations;
  readonly log: Log;
  readonly clock: Clock;
}

/** Does what a request asks for, and gives the pieces of the answer, each as JSON. */
export async function* answer(request: Request, { view, operations, log, clock }: Answerer): AsyncGenerator<string> {
  switch (request.command) {
    case 'node':
      yield JSON.stringify(await view.node());
      return;
    case 'services':
      yield* inPieces(view.services(request.params), clock);
      return;
    case 'connections':
      for await (const piece of view.connections(request.params)) yield JSON.stringify(piece);
      return;
    case 'explain':
      yield JSON.stringify(await view.explain(request.params));
      return;
    case 'drain': {
      const { endpoint } = request.params;
      if (!operations.drain(endpoint)) {
        throw new RequestError('too many endpoints are drained already; give back those that are gone with undrain');
      }
      log.info('An operator drained an endpoint; it gets no new connections', { backend: endpointName(endpoint) });
      yield '{}';
      return;
    }
    case 'undrain': {
      const { endpoint } = request.params;
      const wasDrained = operations.undrain(endpoint);
      if (wasDrained) {
        log.info('An operator gave an endpoint back; it gets new connections', { backend: endpointName(endpoint) });
      }
      yield JSON.stringify({ wasDrained } satisfies Commands['undrain']['piece']);
      return;
    }
    case 'log-level': {
      const { verbosity } = request.params;
      operations.setVerbosity(verbosity);
      log.info('An operator changed how much the log says', { verbosity });
      yield '{}';
      return;
    }
  }
}
