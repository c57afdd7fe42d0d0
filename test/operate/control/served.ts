import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { controlServer as makeServer } from '../../../src/app/servers.ts';
import { connectControl } from '../../../src/cli/client.ts';
import { type Endpoint, endpointName } from '../../../src/model/endpoint.ts';
import type { Operations, View } from '../../../src/model/view.ts';
import { ConnectionFeed } from '../../../src/operate/connection-log/feed.ts';
import { answersOf } from '../../../src/operate/control/answers.ts';
import { FakeDataPlane } from '../../fakes/fake-data-plane.ts';
import { FakeView } from '../../fakes/fake-view.ts';
import { ManualClock } from '../../fakes/manual-clock.ts';
import { RecordingLog } from '../../fakes/recording-log.ts';
import { until } from '../../support/until.ts';

/** A new folder, removed after the test. */
export function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'control-'));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

export class RecordingOperations implements Operations {
  readonly weights = new Map<string, number>();
  verbosity = 0;
  isFull = false;

  setVerbosity(verbosity: number): void {
    this.verbosity = verbosity;
  }

  weightOf(endpoint: Endpoint): number | undefined {
    return this.weights.get(endpointName(endpoint));
  }

  setWeight(endpoint: Endpoint, weight: number | undefined): boolean {
    if (this.isFull) return false;
    if (weight === undefined) this.weights.delete(endpointName(endpoint));
    else this.weights.set(endpointName(endpoint), weight);
    return true;
  }

  undrain(endpoint: Endpoint): boolean {
    return this.weightOf(endpoint) === 0 && this.setWeight(endpoint, undefined);
  }
}

/** Not started. Closed after the test. */
export function controlServer(t: TestContext, path: string, view: View = new FakeView(), known = Promise.resolve()) {
  const clock = new ManualClock();
  const log = new RecordingLog();
  const operations = new RecordingOperations();
  const dataPlane = new FakeDataPlane();
  const feed = new ConnectionFeed({ dataPlane, log, clock });
  const answers = answersOf({ view, operations, feed, log, clock });
  const server = makeServer({ path, routes: [], answers, known, log, clock });
  t.after(() => server.close());
  return { server, clock, log, operations, dataPlane };
}

/** A server that listens. */
export async function served(t: TestContext, view?: View, known?: Promise<void>) {
  const path = join(folder(t), 'control.sock');
  const parts = controlServer(t, path, view, known);
  parts.server.start();
  await serving(parts.log);
  return { ...parts, path, control: connectControl(path, new ManualClock()) };
}

export function serving(log: RecordingLog): Promise<void> {
  return until('the control socket is served', () => log.lines.some(({ message }) => message === 'Serving HTTP'));
}

/** A client that sends any text. Reads at once, unless it is paused. */
export class RawClient {
  readonly socket: Socket;
  text = '';
  closed = false;

  constructor(t: TestContext, path: string, request: string | Buffer = '') {
    this.socket = connect({ path, allowHalfOpen: true });
    this.socket.write(request);
    this.socket.setEncoding('utf8').on('data', (text) => {
      this.text += text;
    });
    // A connection that is cut off may end with a reset.
    this.socket.on('error', () => {});
    this.socket.on('end', () => this.socket.end());
    this.socket.on('close', () => {
      this.closed = true;
    });
    t.after(() => this.socket.destroy());
  }

  async end(): Promise<string> {
    await until('the server has closed the connection', () => this.closed);
    return this.text;
  }
}

/** A request that ends the connection. */
export function httpRequest(target: string, method = 'GET'): string {
  return `${method} ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`;
}

export async function all<T>(pieces: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const piece of pieces) found.push(piece);
  return found;
}
