import '../../support/private-netns.ts';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { before, describe, type TestContext, test } from 'node:test';
import { waitReadable } from '../../../src/sys/descriptor.ts';
import { Memory } from '../../../src/sys/memory.ts';
import {
  accept,
  bindTo,
  connect,
  getsockname,
  listen,
  originalDestination,
  SOCK_STREAM,
  SOCKET_ADDRESS_BYTES,
  socket,
} from '../../../src/sys/socket.ts';
import { decodeAddress, decodePort, encodeSocketAddress, familyOfText } from '../../../src/sys/socket-address.ts';
import { EINPROGRESS, must } from '../../../src/sys/sys-error.ts';
import { PATIENCE_MS } from '../../netns/wait.ts';
import { owned } from '../../sys/descriptors.ts';

const FAMILIES = [
  { node: '127.0.0.1', service: '10.96.0.10', tool: 'iptables' },
  { node: '::1', service: 'fd00:96::a', tool: 'ip6tables' },
];

before(() => {
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  for (const { service } of FAMILIES) execFileSync('ip', ['route', 'add', service, 'dev', 'lo']);
});

/** Connects to `address`. Returns what the listener's side knows of it. */
function accepted(t: TestContext, listener: number, address: string, port: number): number {
  const client = owned(t, must('socket', socket(familyOfText(address), SOCK_STREAM)));
  assert.equal(connect(client, encodeSocketAddress(address, port)), -EINPROGRESS);
  assert.equal(waitReadable(listener, PATIENCE_MS), 1);
  return owned(t, must('accept', accept(listener, new Memory(SOCKET_ADDRESS_BYTES))));
}

describe('the original destination of a TCP connection', () => {
  for (const { node, service, tool } of FAMILIES) {
    test(`${tool}: with and without NAT`, (t) => {
      const family = familyOfText(node);
      const listener = owned(t, must('socket', socket(family, SOCK_STREAM)));
      must('bind', bindTo(listener, encodeSocketAddress(node, 0)));
      must('listen', listen(listener, 8));
      const address = new Memory(SOCKET_ADDRESS_BYTES);
      must('getsockname', getsockname(listener, address));
      const port = decodePort(address.bytes);
      const original = (fd: number) => {
        must('getsockopt', originalDestination(fd, family, address));
        return `${decodeAddress(address.bytes)} ${decodePort(address.bytes)}`;
      };

      const target = `--to-destination ${tool === 'iptables' ? node : `[${node}]`}:${port}`.split(' ');
      const rule = ['-p', 'tcp', '-d', service, '--dport', '80', '-j', 'DNAT', ...target];
      execFileSync(tool, ['-w', '-t', 'nat', '-A', 'OUTPUT', ...rule]);
      assert.equal(original(accepted(t, listener, service, 80)), `${service} 80`);
      assert.equal(original(accepted(t, listener, node, port)), `${node} ${port}`);
    });
  }
});
