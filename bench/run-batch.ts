import { result } from '../src/sys/calls.ts';
import { Memory } from '../src/sys/memory.ts';
import { SOCKET_ADDRESS_BYTES, setOption } from '../src/sys/socket.ts';
import { must } from '../src/sys/sys-error.ts';
import { recvfrom, sendto } from './calls.ts';
import type { Datagrams } from './datagram-batch.ts';

const IPPROTO_UDP = 17;
const UDP_SEGMENT = 103;
const UDP_GRO = 104;
const MOST_BYTES = 65_536;

/**
 * The same as {@link DatagramBatch} for datagrams of one size and one sender that cost their ends next to nothing: the
 * kernel takes a run apart where somebody wants single datagrams, and leaves it together up to here.
 */
export class RunBatch implements Datagrams {
  readonly data = new Memory(MOST_BYTES);
  readonly #datagramBytes: number;
  readonly #name = new Memory(SOCKET_ADDRESS_BYTES);
  readonly #nameLength = new Memory(4);
  readonly #isAddressed: boolean;

  constructor(datagramBytes: number, isAddressed: boolean) {
    this.#datagramBytes = datagramBytes;
    this.#isAddressed = isAddressed;
  }

  prepare(fd: number): void {
    must('UDP_SEGMENT', setOption(fd, { level: IPPROTO_UDP, name: UDP_SEGMENT, value: this.#datagramBytes }));
    must('UDP_GRO', setOption(fd, { level: IPPROTO_UDP, name: UDP_GRO, value: 1 }));
  }

  receive(fd: number): number {
    this.#nameLength.bytes.writeUInt32LE(SOCKET_ADDRESS_BYTES);
    const { address } = this.data;
    const bytes = result(recvfrom(fd, address, MOST_BYTES, 0, this.#name.address, this.#nameLength.address));
    return bytes < 0 ? bytes : Math.floor(bytes / this.#datagramBytes);
  }

  offset(i: number): number {
    return i * this.#datagramBytes;
  }

  /** All have one size. */
  setLength(): void {}

  send(fd: number, count: number): number {
    const bytes = count * this.#datagramBytes;
    const [name, nameLength] = this.#isAddressed ? [this.#name.address, this.#nameLength.bytes.readUInt32LE()] : [0, 0];
    const sent = result(sendto(fd, this.data.address, bytes, 0, name, nameLength));
    return sent < 0 ? sent : sent / this.#datagramBytes;
  }
}
