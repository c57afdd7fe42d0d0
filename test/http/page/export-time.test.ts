import assert from 'node:assert/strict';
import { test } from 'node:test';
import { statusRoutes } from '../../../src/http/page/routes.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';

test('the whole as JSON and CSV, like the live page, may take as long as somebody goes on reading; pages may not', async () => {
  const routes = statusRoutes(new FakeView(), new ManualClock());
  const query = new URLSearchParams();
  const unhurried = await Promise.all(
    routes.map(async ([path, handler]) => {
      const client = new AbortController();
      const response = await handler({ query, signal: client.signal });
      client.abort();
      return response.unhurried ? [path] : [];
    }),
  );
  assert.deepEqual(unhurried.flat(), ['/status.json', '/status.csv', '/status/live']);
});
