import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { TestContext } from 'node:test';
import { Health } from '../../../src/http/health.ts';
import { statusRoutes } from '../../../src/http/page/routes.ts';
import { healthzRoutes, metricsRoutes } from '../../../src/http/routes.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { metricsOf } from '../../http/metrics-of.ts';
import { serve } from '../../http/serve.ts';
import { mutateOne } from '../mutate.ts';
import type { OpenTarget } from '../target.ts';

/* What a client writes to the HTTP server → answers that are neither failures of ours nor an echo of HTML. */

const OWN_HOST = /^host:[ \t]*(?:localhost|[\d.]+|\[[\da-f:.]+\])?(?::\d*)?[ \t]*\r?$/im;
/** After `100 Continue`, too. */
const FIRST_IS_OK = /^(?:HTTP\/1\.1 1\d\d .*?\r\n\r\n)*HTTP\/1\.1 200 /s;

export const open: OpenTarget = async (t) => {
  const metrics = metricsOf(() => []);
  const clock = new ManualClock();
  const health = new Health(clock, 60_000);
  const routes = new Map([
    ...metricsRoutes(metrics, () => ({})),
    ...statusRoutes(new FakeView(), clock),
    ...[...healthzRoutes({ health, nodeEligible: () => true, apiStatus: () => undefined, metrics })],
  ]);
  const { address, log } = await serve(t as TestContext, routes);
  return {
    make: mutateOne,

    async run(input) {
      const socket = connect({ host: address.address, port: address.port, allowHalfOpen: true });
      socket.on('error', () => {});
      const pieces: Buffer[] = [];
      const closed = once(socket, 'close');
      socket.on('data', (piece) => pieces.push(piece)).on('end', () => socket.end());
      socket.end(input);
      await closed;
      const answer = Buffer.concat(pieces).toString('latin1');
      assert.deepEqual(log.of('error'), []);
      assert.ok(answer === '' || /^HTTP\/1\.1 (?:[1234]\d\d|503) /.test(answer), answer.slice(0, 200));
      assert.ok(!answer.includes('HTTP/1.1 500 '), answer.slice(-500));
      assert.ok(!answer.includes('<img'), 'what a client sends is no HTML');
      const request = input.toString('latin1');
      // DNS rebinding: only names that are ours get an answer. What follows the first request may have no name:
      // HTTP/0.9 needs none, and no browser sends it.
      const [head = ''] = request.split('\r\n\r\n', 1);
      if (/^\S+ \S+ HTTP\/1\.\d\r\n/.test(head) && /^host:/im.test(head) && !OWN_HOST.test(head)) {
        assert.doesNotMatch(answer, FIRST_IS_OK, 'a name that is not ours has no answer');
      }
    },
  };
};
