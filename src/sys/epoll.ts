import { calls, result } from './calls.ts';
import { EPOLL_EVENT, Memory } from './memory.ts';

const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL_ADD = 1;
const EPOLL_CTL_DEL = 2;
const EPOLL_CTL_MOD = 3;

export const EPOLLIN = 0x1;
export const EPOLLPRI = 0x2;
export const EPOLLOUT = 0x4;
export const EPOLLERR = 0x8;
export const EPOLLHUP = 0x10;
export const EPOLLRDHUP = 0x2000;
export const EPOLLET = 1 << 31;

const WORDS = EPOLL_EVENT.size / 4;
const DATA = EPOLL_EVENT.data / 4;

/** One epoll instance. The 64 bits of data of an event are the descriptor and a tag of the caller, 32 bits each. */
export class Epoll {
  readonly fd: number;
  readonly #capacity: number;
  readonly #events: Memory;
  readonly #words: Int32Array;
  readonly #change = new Memory(EPOLL_EVENT.size);
  readonly #changeWords = this.#change.words();

  /** `capacity`: events per {@link wait}. Check {@link fd}, which is a negative errno after a failure. */
  constructor(capacity: number) {
    this.#capacity = capacity;
    this.#events = new Memory(capacity * EPOLL_EVENT.size);
    this.#words = this.#events.words();
    this.fd = result(calls.epoll_create1(EPOLL_CLOEXEC));
  }

  add(fd: number, events: number, tag: number): number {
    return this.#control(EPOLL_CTL_ADD, fd, events, tag);
  }

  modify(fd: number, events: number, tag: number): number {
    return this.#control(EPOLL_CTL_MOD, fd, events, tag);
  }

  remove(fd: number): number {
    return this.#control(EPOLL_CTL_DEL, fd, 0, 0);
  }

  /** The number of events, or a negative errno. `timeoutMs`: -1 waits without a limit. */
  wait(timeoutMs: number): number {
    return result(calls.epoll_wait(this.fd, this.#events.address, this.#capacity, timeoutMs));
  }

  // The parts of the `index`-th event of the last `wait`.

  events(index: number): number {
    return this.#words[index * WORDS] as number;
  }

  descriptor(index: number): number {
    return this.#words[index * WORDS + DATA] as number;
  }

  tag(index: number): number {
    return this.#words[index * WORDS + DATA + 1] as number;
  }

  #control(operation: number, fd: number, events: number, tag: number): number {
    this.#changeWords[0] = events;
    this.#changeWords[DATA] = fd;
    this.#changeWords[DATA + 1] = tag;
    return result(calls.epoll_ctl(this.fd, operation, fd, this.#change.address));
  }
}
