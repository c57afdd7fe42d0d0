import { close } from './descriptor.ts';
import { AF_INET, markOption, SOCK_DGRAM, SOCK_STREAM, setOption, socket } from './socket.ts';
import { familyOfText } from './socket-address.ts';
import { must } from './sys-error.ts';

/** The descriptor of a new socket for a connection to `address`, with this mark. Throws a SysError. */
export function openMarkedSocket(address: string, protocol: 'TCP' | 'UDP', mark: number): number {
  return open(familyOfText(address), protocol === 'TCP' ? SOCK_STREAM : SOCK_DGRAM, mark);
}

/** Throws a SysError where this process may not mark sockets. */
export function checkMarking(mark: number): void {
  close(open(AF_INET, SOCK_DGRAM, mark));
}

function open(family: number, type: number, mark: number): number {
  const fd = must('socket', socket(family, type));
  const status = setOption(fd, markOption(mark));
  if (status < 0) close(fd);
  must('setsockopt SO_MARK', status);
  return fd;
}
