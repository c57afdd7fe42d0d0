import { execFileSync } from 'node:child_process';

/** Two addresses of the node besides loopback. */
export const NODE_ADDRESSES = ['10.99.0.1', '10.99.0.2'] as const;

/** Swallows what is sent to it: its neighbour entry names a link-layer address that nobody has. */
export const BLACK_HOLE = '10.99.0.66';

/** The kernel says at once that there is no way. */
export const UNREACHABLE = '10.98.0.1';

export function ip(...args: string[]): void {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'inherit'] });
}

/** A fresh namespace has nothing but a loopback interface that is down. A veth pair stands in for the network. */
export function buildNetwork(): void {
  ip('link', 'set', 'lo', 'up');
  ip('link', 'add', 'node0', 'type', 'veth', 'peer', 'name', 'net0');
  ip('link', 'set', 'node0', 'up');
  ip('link', 'set', 'net0', 'up');
  for (const address of NODE_ADDRESSES) ip('address', 'add', `${address}/24`, 'dev', 'node0');
  ip('neighbour', 'add', BLACK_HOLE, 'lladdr', '02:00:00:00:00:66', 'dev', 'node0', 'nud', 'permanent');
  ip('route', 'add', 'unreachable', UNREACHABLE);
}
