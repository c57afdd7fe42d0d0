import { createInterface } from 'node:readline';
import { endProcess } from '../../../src/kernel/process.ts';
import { FakeApiServer } from '../../fakes/fake-api-server.ts';

/*
 * The fake API server as a program, at the address that its first argument names. If there is a second one, requests
 * need this token. It prints its URL, then reads one object per line to create or replace, and answers each. An empty
 * line ends every watch.
 */
const [, , host = '', token] = process.argv;
const server = await FakeApiServer.start({ host });
if (token !== undefined) server.authorize = ({ authorization }) => authorization === `Bearer ${token}`;
console.log(server.url);
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => {
  if (line === '') server.endWatches();
  else server.set(JSON.parse(line));
  console.log('done');
});
// The parent is gone: nothing may outlive a test run.
lines.on('close', () => void endProcess(0));
