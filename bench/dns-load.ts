import { close } from '../src/sys/descriptor.ts';
import { EPOLLIN, Epoll } from '../src/sys/epoll.ts';
import { Memory } from '../src/sys/memory.ts';
import { AF_INET, connect, recv, SOCK_DGRAM, send, socket } from '../src/sys/socket.ts';
import { encodeSocketAddress } from '../src/sys/socket-address.ts';
import { must } from '../src/sys/sys-error.ts';

/*
 * A closed loop of resolvers, each with one query under way. Every query has a socket of its own, and so a source port
 * of its own, as resolver libraries do it. Writes one line of JSON.
 *
 *   dns-load.ts HOST PORT RESOLVERS SECONDS NAME
 *
 * Node's resolver (c-ares) and dnsperf use a socket again for many queries.
 */

/** As long as a query may take. glibc waits for 5 s. */
const PATIENCE_MS = 1000;
const HEADER_BYTES = 12;
const ANSWER_BYTES = 512;

const [host, name] = [process.argv[2]!, process.argv[6]!];
const [port, resolvers, seconds] = process.argv.slice(3, 6).map(Number) as [number, number, number];

const server = encodeSocketAddress(host, port);
const query = Memory.of(encodeQuery(name));
const answer = new Memory(ANSWER_BYTES);
const epoll = new Epoll(resolvers);
const fds = new Int32Array(resolvers).fill(-1);
const ids = new Uint16Array(resolvers);
const askedAt = new Float64Array(resolvers);
let lastId = 0;
let answers = 0;
let lost = 0;
let strange = 0;
let nowMs = performance.now();

/** One question for the address of a name (RFC 1035). Its first two bytes are the query's number. */
function encodeQuery(of: string): Buffer {
  const labels = of.split('.').flatMap((label) => [Buffer.from([label.length]), Buffer.from(label)]);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(0x0100, 2); // recursion desired
  header.writeUInt16BE(1, 4); // one question
  return Buffer.concat([header, ...labels, Buffer.from([0, 0, 1, 0, 1])]); // type A, class IN
}

function ask(resolver: number): void {
  const fd = must('socket', socket(AF_INET, SOCK_DGRAM));
  must('connect', connect(fd, server));
  must('epoll_ctl', epoll.add(fd, EPOLLIN, resolver));
  lastId = (lastId + 1) & 0xffff;
  query.bytes.writeUInt16BE(lastId, 0);
  ids[resolver] = lastId;
  fds[resolver] = fd;
  askedAt[resolver] = nowMs;
  send(fd, query, 0, query.length);
}

function hear(resolver: number, fd: number): void {
  if (fds[resolver] !== fd) return;
  const bytes = recv(fd, answer, 0, ANSWER_BYTES);
  if (bytes < 0) lost++;
  else if (isAnswer(bytes, ids[resolver]!)) answers++;
  else strange++;
  close(fd);
  ask(resolver);
}

/** A response without an error, with one answer, to this query. */
function isAnswer(bytes: number, id: number): boolean {
  const { bytes: header } = answer;
  if (bytes < HEADER_BYTES || header.readUInt16BE(0) !== id) return false;
  return (header.readUInt16BE(2) & 0x800f) === 0x8000 && header.readUInt16BE(6) === 1;
}

function giveUpOld(): void {
  for (let resolver = 0; resolver < resolvers; resolver++) {
    if (nowMs - askedAt[resolver]! < PATIENCE_MS) continue;
    lost++;
    close(fds[resolver]!);
    ask(resolver);
  }
}

const begun = nowMs;
for (let resolver = 0; resolver < resolvers; resolver++) ask(resolver);
let checkedAt = begun;
while (nowMs - begun < seconds * 1000) {
  const count = epoll.wait(50);
  nowMs = performance.now();
  for (let i = 0; i < count; i++) hear(epoll.tag(i), epoll.descriptor(i));
  if (nowMs - checkedAt < 50) continue;
  checkedAt = nowMs;
  giveUpOld();
}
console.log(JSON.stringify({ perSecond: answers / ((nowMs - begun) / 1000), lost, strange }));
