import type { ProxiedProtocol } from '../../model/service-port.ts';

/** A process of this machine, as far as /proc tells of it. */
export interface HostProcess {
  readonly pid: number;
  /** Of its executable, or where that may not be seen, as `ps` shows it. */
  readonly name: string;
}

/** `30080/TCP`: at whatever address. */
export type SocketPort = `${number}/${ProxiedProtocol}`;

/** Whether it is a proxy of this program, of whatever version. */
export function isThisProgram({ name }: HostProcess): boolean {
  return name === 'kube-userspace-proxy';
}
