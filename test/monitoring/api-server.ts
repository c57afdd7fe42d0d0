import { createInterface } from 'node:readline';
import { endProcess } from '../../src/kernel/process.ts';
import { FakeApiServer } from '../fakes/fake-api-server.ts';

/*
 * The stand-in for an API server as a program, so that it can run in another network namespace: writes its URL, then
 * takes one object to create or replace per line. An empty line ends every watch, as a real server does once in a while.
 */
const server = await FakeApiServer.start();
console.log(server.url);
const lines = createInterface({ input: process.stdin });
lines.on('line', (line) => (line === '' ? server.endWatches() : server.set(JSON.parse(line))));
// Whoever started us is gone: nothing may outlive a test run.
lines.on('close', () => void endProcess(0));
