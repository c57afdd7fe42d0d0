import { EPOLLIN, Epoll } from '../src/sys/epoll.ts';
import { AF_INET, connect, SOCK_DGRAM, socket } from '../src/sys/socket.ts';
import { encodeSocketAddress } from '../src/sys/socket-address.ts';
import { must } from '../src/sys/sys-error.ts';
import { DatagramBatch } from './datagram-batch.ts';
import { RunBatch } from './run-batch.ts';

/*
 * A closed loop: each flow (a socket of its own) keeps so many datagrams under way and answers every reply with the
 * next question. Writes one line of JSON.
 *
 *   udp-load.ts HOST PORT FLOWS OUTSTANDING SECONDS [runs]
 *
 * On the same few libc calls as the product, and not on node:dgram, which would be slower than what it measures.
 */

const DATAGRAM_BYTES = 64;
/** A flow that is silent for so long has lost what it had under way, and begins again. */
const SILENCE_MS = 200;

const [host, port, flows, outstanding, seconds] = [process.argv[2]!, ...process.argv.slice(3).map(Number)] as [
  string,
  number,
  number,
  number,
  number,
];

const batch = process.argv[7] === 'runs' ? new RunBatch(DATAGRAM_BYTES, false) : new DatagramBatch(outstanding, false);
const marks = batch.data.words();
const epoll = new Epoll(flows);
const underWay = new Int32Array(flows);
const heardAt = new Float64Array(flows);
const fds = new Int32Array(flows);
let answers = 0;
let lost = 0;
let strange = 0;
let heardNow = 0;
let isOver = false;

/** Every datagram carries the number of its flow, so that an answer that went astray is noticed. */
function ask(flow: number): void {
  for (let i = 0; i < outstanding; i++) {
    marks[batch.offset(i) / 4] = flow;
    batch.setLength(i, DATAGRAM_BYTES);
  }
  underWay[flow]! += Math.max(batch.send(fds[flow]!, outstanding), 0);
}

function hear(flow: number): void {
  const count = batch.receive(fds[flow]!);
  if (count <= 0) return;
  for (let i = 0; i < count; i++) if (marks[batch.offset(i) / 4] !== flow) strange++;
  answers += count;
  heardAt[flow] = heardNow;
  underWay[flow]! -= count;
  if (!isOver) underWay[flow]! += Math.max(batch.send(fds[flow]!, count), 0);
}

function turn(timeoutMs: number): number {
  const count = epoll.wait(timeoutMs);
  heardNow = performance.now();
  for (let i = 0; i < count; i++) hear(epoll.tag(i));
  return count;
}

function restartSilent(now: number): void {
  for (let flow = 0; flow < flows; flow++) {
    if (now - heardAt[flow]! < SILENCE_MS) continue;
    lost += underWay[flow]!;
    underWay[flow] = 0;
    heardAt[flow] = now;
    ask(flow);
  }
}

for (let flow = 0; flow < flows; flow++) {
  fds[flow] = must('socket', socket(AF_INET, SOCK_DGRAM));
  batch.prepare(fds[flow]!);
  must('connect', connect(fds[flow]!, encodeSocketAddress(host, port)));
  must('epoll_ctl', epoll.add(fds[flow]!, EPOLLIN, flow));
}
const begun = performance.now();
for (let flow = 0; flow < flows; flow++) {
  heardAt[flow] = begun;
  ask(flow);
}
let checkedAt = begun;
for (;;) {
  turn(50);
  const now = performance.now();
  if (now - begun > seconds * 1000) break;
  if (now - checkedAt < 50) continue;
  checkedAt = now;
  restartSilent(now);
}
const perSecond = answers / ((performance.now() - begun) / 1000);
isOver = true;
// What is still under way has this long to arrive.
while (turn(SILENCE_MS) > 0);
lost += underWay.reduce((sum, count) => sum + count, 0);
console.log(JSON.stringify({ perSecond, lost, strange }));
