import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { TestContext } from 'node:test';
import { decodeRequest, RequestError } from '../../../src/operate/control/protocol.ts';
import { served } from '../../operate/control/served.ts';
import { mutateOne, mutateValue } from '../mutate.ts';
import type { OpenTarget } from '../target.ts';

/* What a client writes to the live control socket → an answer, which is whole, or a sentence. */

export const open: OpenTarget = async (t) => {
  const { path, log, operations } = await served(t as TestContext);
  return {
    make(known, draws) {
      const seed = draws.pick(known).toString();
      if (draws.once(3) || !seed.startsWith('{')) return mutateOne(known, draws);
      return Buffer.from(`${JSON.stringify(mutateValue(JSON.parse(seed), draws))}\n`);
    },

    async run(input) {
      log.lines.length = 0;
      const socket = connect({ path, allowHalfOpen: true });
      socket.on('error', () => {});
      const pieces: Buffer[] = [];
      socket.on('data', (piece) => pieces.push(piece)).on('end', () => socket.end());
      const closed = once(socket, 'close');
      const request = input
        .toString()
        .split('\n')
        .slice(0, -1)
        .find((line) => line.trim() !== '');
      // An answer to `tail` never ends, and half a line never gets one.
      if (request === undefined || isTail(request)) socket.end(input);
      else socket.write(input);
      await closed;
      const answer = Buffer.concat(pieces).toString();
      assert.deepEqual(log.of('error'), []);
      assert.ok(request === undefined || isTail(request) || answer.endsWith('\n'), 'each request is answered');
      const lines = answer
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as object);
      for (const line of lines.slice(0, -1)) assert.deepEqual(Object.keys(line), ['piece']);
      if (request !== undefined && !isTail(request))
        assert.match(Object.keys(lines.at(-1) ?? {}).join(), /^(?:end|error)$/);
      for (const [name, weight] of operations.weights) {
        assert.match(name, /^(?:[\d.]+|\[[\da-f:.]+\]):\d{1,5}$/);
        assert.ok(Number.isInteger(weight) && weight >= 0 && weight <= 65_535, `${weight}`);
      }
      assert.ok(Number.isInteger(operations.verbosity) && operations.verbosity <= 10, `${operations.verbosity}`);
      operations.weights.clear();
    },
  };
};

function isTail(request: string): boolean {
  try {
    return decodeRequest(request).command === 'tail';
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    return false;
  }
}
