import type { Clock, Random } from '../util/clock.ts';
import type { Log } from '../util/log.ts';
import { Field, FieldError } from '../util/untrusted.ts';
import type { ResourceHealth } from './api-health.ts';
import { decodeNode, type NodeStatus, nodeNameOf } from './node-status.ts';
import { Reflector, type Resource } from './reflector.ts';
import type { Transport } from './transport.ts';

/**
 * Follows the Node object of this node, and no other, for ever. Tells every real difference, the first state included;
 * a Node that has gone keeps its last state, with `isDeleted`. Nothing is told before the object was seen once.
 * Resolves only after the abort; never rejects.
 *
 * A server that does not let us (the role `system:node-proxier` of old releases may get nodes, not watch them) costs
 * only what depends on it, and one line in the log says so. It says nothing of how fresh Services are, so it does not count for
 * the state of the connection.
 */
export function watchNode({
  name,
  transport,
  clock,
  random,
  log,
  onChange,
  signal,
}: {
  /** Of the Node object. */
  readonly name: string;
  readonly transport: Transport;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
  readonly onChange: (status: NodeStatus) => void;
  readonly signal: AbortSignal;
}): Promise<void> {
  let last: NodeStatus | undefined;
  const reflector = new Reflector<NodeStatus>({
    resource: nodeResource(name),
    transport,
    clock,
    random,
    log,
    health: tellOnce(name, log),
    sink: {
      changed: (changes) => {
        for (const { key, value } of changes) {
          if (key !== name) continue;
          const status = value ?? (last && { ...last, isDeleted: true });
          last = status;
          if (status !== undefined) onChange(status);
        }
      },
      listed: () => {},
      absent: () => {},
    },
  });
  return reflector.run(signal);
}

function nodeResource(name: string): Resource<NodeStatus> {
  return {
    kind: 'Node',
    path: '/api/v1/nodes',
    selectors: { fieldSelector: `metadata.name=${name}` },
    isOptional: false,
    identify: (object) => {
      try {
        return { key: nodeNameOf(Field.root(object)) };
      } catch (error) {
        if (error instanceof FieldError) return { problem: error.problem };
        throw error;
      }
    },
    decode: decodeNode,
  };
}

/** One line for each time that it cannot be followed. */
function tellOnce(node: string, log: Log): ResourceHealth {
  let isLost = false;
  return {
    listed: () => {},
    heard: () => {},
    dismissed: () => {},
    following: () => {
      isLost = false;
    },
    lost: (err) => {
      if (isLost) return;
      isLost = true;
      log.warn('The Node object of this node cannot be followed; what is known of it stands', { node, err });
    },
  };
}
