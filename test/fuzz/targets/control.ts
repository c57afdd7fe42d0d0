import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { TestContext } from 'node:test';
import { served } from '../../operate/control/served.ts';
import { mutateOne } from '../mutate.ts';
import type { OpenTarget } from '../target.ts';

/* What a client writes to the live control socket → answers that are whole and no failures of the program. */

export const open: OpenTarget = async (t) => {
  const { path, log, operations } = await served(t as TestContext);
  return {
    make: mutateOne,

    async run(input) {
      log.lines.length = 0;
      const socket = connect({ path, allowHalfOpen: true });
      socket.on('error', () => {});
      const pieces: Buffer[] = [];
      socket.on('data', (piece) => pieces.push(piece)).on('end', () => socket.end());
      const closed = once(socket, 'close');
      socket.end(input);
      // An answer to `tail` never ends.
      if (input.includes('tail')) socket.destroySoon();
      await closed;
      const answer = Buffer.concat(pieces).toString('latin1');
      assert.deepEqual(log.of('error'), []);
      assert.ok(answer === '' || /^(?:HTTP\/1\.1 [1234]\d\d |\{"error":")/.test(answer), answer.slice(0, 200));
      for (const [name, weight] of operations.weights) {
        assert.match(name, /^(?:[\d.]+|\[[\da-f:.]+\]):\d{1,5}$/);
        assert.ok(Number.isInteger(weight) && weight >= 0 && weight <= 65_535, `${weight}`);
      }
      assert.ok(Number.isInteger(operations.verbosity) && operations.verbosity <= 10, `${operations.verbosity}`);
      operations.weights.clear();
    },
  };
};
