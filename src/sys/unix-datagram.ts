import { close } from './descriptor.ts';
import { bind, result } from './libc.ts';
import { Memory } from './memory.ts';
import { AF_UNIX, MSG_NOSIGNAL, SOCK_DGRAM, socket } from './socket.ts';
import { EINVAL } from './sys-error.ts';

const sendtoC = bind('int64_t sendto(int, int64_t, size_t, int, int64_t, unsigned int)');

/** `struct sockaddr_un`: 2 bytes of family, then the path. */
const PATH = 2;
const MAX_PATH_BYTES = 108;

/**
 * Sends one datagram to the Unix socket at `path`, or, where it begins with `@`, of that name in the abstract namespace.
 * Bytes sent, or a negative errno.
 */
export function sendUnixDatagram(path: string, text: string): number {
  const isAbstract = path.startsWith('@');
  const name = Buffer.from(isAbstract ? `\0${path.slice(1)}` : `${path}\0`);
  if (name.length > MAX_PATH_BYTES) return -EINVAL;
  const address = new Memory(PATH + name.length);
  address.bytes.writeUInt16LE(AF_UNIX);
  name.copy(address.bytes, PATH);
  const content = Buffer.from(text);
  const data = new Memory(content.length);
  content.copy(data.bytes);
  const fd = socket(AF_UNIX, SOCK_DGRAM);
  if (fd < 0) return fd;
  const sent = result(sendtoC(fd, data.address, data.length, MSG_NOSIGNAL, address.address, address.length));
  close(fd);
  return sent;
}
