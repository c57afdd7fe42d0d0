import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { shortTimeWait, unseenBridge } from '../../src/kernel/client-addresses.ts';

const HIDDEN = 'iptables does not see what passes bridge cbr0';

describe('a bridge that iptables does not see', () => {
  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'bridges-'));
    write('sys/class/net/eth0/mtu', '1500');
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  const write = (path: string, text: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), `${text}\n`);
  };
  const bridge = (name: string, { ports = ['veth0'], own = '0' } = {}) => {
    write(`sys/class/net/${name}/bridge/nf_call_iptables`, own);
    write(`sys/class/net/${name}/bridge/nf_call_ip6tables`, '0');
    mkdirSync(join(root, `sys/class/net/${name}/brif`), { recursive: true });
    for (const port of ports) write(`sys/class/net/${name}/brif/${port}`, '');
  };
  const switches = (iptables: string, ip6tables: string) => {
    write('proc/sys/net/bridge/bridge-nf-call-iptables', iptables);
    write('proc/sys/net/bridge/bridge-nf-call-ip6tables', ip6tables);
  };
  const look = (family: 'IPv4' | 'IPv6' = 'IPv4') =>
    unseenBridge(family, { proc: join(root, 'proc'), sys: join(root, 'sys') });

  test('is nothing without a bridge, and with one that nothing is connected to', () => {
    assert.equal(look(), undefined);
    bridge('docker0', { ports: [] });
    assert.equal(look(), undefined);
  });

  test('is every bridge without br_netfilter, whatever its own switch says', () => {
    bridge('cbr0', { own: '1' });
    assert.equal(look(), `${HIDDEN}; modprobe br_netfilter`);
    for (const name of ['br1', 'br2', 'br3']) bridge(name);
    assert.match(look() ?? '', /what passes bridges \w+, \w+, \w+ and 1 more; /);
  });

  test('depends on the switch of its family', () => {
    bridge('cbr0');
    switches('1', '0');
    assert.equal(look(), undefined);
    assert.equal(
      look('IPv6'),
      'ip6tables does not see what passes bridge cbr0; sysctl net.bridge.bridge-nf-call-ip6tables=1',
    );
  });

  test('may have a switch of its own', () => {
    switches('0', '0');
    bridge('cbr0', { own: '1' });
    assert.equal(look(), undefined);
    bridge('br1');
    assert.equal(look(), 'iptables does not see what passes bridge br1; sysctl net.bridge.bridge-nf-call-iptables=1');
  });
});

test('connection tracking that forgets too soon is an obstacle from below 30 s on, and says what to do', (t) => {
  const proc = mkdtempSync(join(tmpdir(), 'conntrack-'));
  t.after(() => rmSync(proc, { recursive: true, force: true }));
  assert.equal(shortTimeWait({ proc }), undefined, 'without connection tracking');
  mkdirSync(join(proc, 'sys/net/netfilter'), { recursive: true });
  const look = (seconds: number) => {
    writeFileSync(join(proc, 'sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait'), `${seconds}\n`);
    return shortTimeWait({ proc });
  };
  assert.deepEqual([look(30), look(120)], [undefined, undefined]);
  assert.equal(
    look(29),
    'the kernel may forget a connection 29 s after a client has ended its direction, while it waits for the answer; sysctl net.netfilter.nf_conntrack_tcp_timeout_time_wait=120',
  );
});
