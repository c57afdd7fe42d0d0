import { createInterface } from 'node:readline';
import { endProcess } from '../../../src/kernel/process.ts';
import { FakeApiServer } from '../../fakes/fake-api-server.ts';

/*
 * The fake API server as a program, at the address and port that its first two arguments name. If there is a third one,
 * requests need this token. It prints its URL, then reads one object per line to create or replace, and answers each.
 * An empty line ends every watch.
 */
const [, , host = '', port, token] = process.argv;
const server = await FakeApiServer.start({ host, port: Number(port) });
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
