import { close } from './descriptor.ts';
import { Memory } from './memory.ts';
import { AF_INET, getOption, IPPROTO_TCP, SOCK_STREAM, type SocketOption, setOption, socket } from './socket.ts';
import { ENOENT, EPERM, errnoName, must } from './sys-error.ts';

const TCP_CONGESTION = 13;
/** The kernel's TCP_CA_NAME_MAX. */
const NAME_BYTES = 16;

/** Sockets that a listener accepts inherit it. */
export function congestionOption(name: string): SocketOption {
  const value = new Memory(NAME_BYTES);
  value.bytes.write(name, 'latin1');
  return { level: IPPROTO_TCP, name: TCP_CONGESTION, value };
}

/** The congestion control of a TCP socket; `undefined` if the kernel does not say. */
export function congestionControlOf(fd: number): string | undefined {
  const value = new Memory(NAME_BYTES);
  if (getOption(fd, IPPROTO_TCP, TCP_CONGESTION, value) < 0) return undefined;
  return value.bytes.toString('latin1').replace(/\0.*$/s, '');
}

/** What a TCP socket has that nobody has told. */
export function defaultCongestionControl(): string | undefined {
  return ofNewSocket(congestionControlOf);
}

/** Why our sockets cannot have it; `undefined` when they can. The kernel loads its module if there is one. */
export function congestionControlProblem(name: string): string | undefined {
  const errno = ofNewSocket((fd) => -setOption(fd, congestionOption(name)));
  if (errno === 0) return undefined;
  if (errno === ENOENT) return `this kernel has no congestion control "${name}"`;
  if (errno === EPERM) return `without CAP_NET_ADMIN, net.ipv4.tcp_allowed_congestion_control must list "${name}"`;
  return `the kernel refuses "${name}" (${errnoName(errno)})`;
}

function ofNewSocket<T>(ask: (fd: number) => T): T {
  const fd = must('socket', socket(AF_INET, SOCK_STREAM));
  const answer = ask(fd);
  close(fd);
  return answer;
}
