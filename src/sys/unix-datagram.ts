import { close } from './descriptor.ts';
import { bind, result } from './libc.ts';
import { Memory } from './memory.ts';
import { AF_UNIX, MSG_NOSIGNAL, SOCK_DGRAM, socket } from './socket.ts';
import { EINVAL } from './sys-error.ts';
import { encodeUnixAddress } from './unix-address.ts';

const sendtoC = bind('int64_t sendto(int, int64_t, size_t, int, int64_t, unsigned int)');

/** Sends one datagram to a Unix socket ({@link encodeUnixAddress}). Bytes sent, or a negative errno. */
export function sendUnixDatagram(path: string, text: string): number {
  const address = encodeUnixAddress(path);
  if (address === undefined) return -EINVAL;
  const content = Buffer.from(text);
  const data = new Memory(content.length);
  content.copy(data.bytes);
  const fd = socket(AF_UNIX, SOCK_DGRAM);
  if (fd < 0) return fd;
  const sent = result(sendtoC(fd, data.address, data.length, MSG_NOSIGNAL, address.address, address.length));
  close(fd);
  return sent;
}
