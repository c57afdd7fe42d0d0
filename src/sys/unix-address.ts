import { Memory } from './memory.ts';
import { AF_UNIX } from './socket.ts';

/** `struct sockaddr_un`: 2 bytes of family, then the path. */
const PATH = 2;
const MAX_PATH_BYTES = 108;

/** The address of a Unix socket: a path, or, where it begins with `@`, a name in the abstract namespace. `undefined`: too long. */
export function encodeUnixAddress(path: string): Memory | undefined {
  const isAbstract = path.startsWith('@');
  const name = Buffer.from(isAbstract ? `\0${path.slice(1)}` : `${path}\0`);
  if (name.length > MAX_PATH_BYTES) return undefined;
  const address = new Memory(PATH + name.length);
  address.bytes.writeUInt16LE(AF_UNIX);
  name.copy(address.bytes, PATH);
  return address;
}
