import { close } from './descriptor.ts';
import { AF_UNIX, connect, type PeerCredentials, peerCredentials, SOCK_STREAM, socket } from './socket.ts';
import { EINVAL } from './sys-error.ts';
import { encodeUnixAddress } from './unix-address.ts';

/**
 * Who listens at a Unix socket (its path, or `@` and its abstract name), as the kernel knows it. Or a negative errno:
 * ECONNREFUSED when nobody does.
 */
export function ownerOfUnixListener(path: string): PeerCredentials | number {
  const address = encodeUnixAddress(path);
  if (address === undefined) return -EINVAL;
  const fd = socket(AF_UNIX, SOCK_STREAM);
  if (fd < 0) return fd;
  const status = connect(fd, address);
  const owner = status < 0 ? status : peerCredentials(fd);
  close(fd);
  return owner;
}
