import assert from 'node:assert/strict';
import { isIP, SocketAddress } from 'node:net';
import { JUMPS } from '../../src/capture/iptables/chains.ts';
import type { IpFamily } from '../../src/model/address.ts';

/* Every line that this program may give to iptables-restore. Written without the code that writes or checks them. */

const TABLE = /^\*(?:nat|filter|mangle)$/;
const OWN_CHAIN = new RegExp(
  '^KUBE-(?:PORTALS-(?:CONTAINER|HOST)|NODEPORT-(?:CONTAINER|HOST|NON-LOCAL)|LOCAL-PORTS|DOORS|LET-IN|' +
    'USERSPACE-(?:PROBE|RETIRED)|USP-(?:PB|PC|PH|NC|NH|NL|LP|LI|SSR|SCP|SHP|SDR)-[\\w-]{1,16})$',
);
const LABEL = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
const OWN_COMMENT = 'connections of the proxy to endpoints';

/** The parts of a rule in their order, each with a blank after it but for the last; the target is mandatory. */
const RULE = new RegExp(
  [
    '^(?:-s (?<source>\\S+) )?',
    '(?:-d (?<destination>\\S+) )?',
    '(?:-i (?<device>[\\w.@-]{1,15}\\+?) )?',
    '(?:-p (?<protocol>tcp|udp) )?',
    '(?:-m comment --comment "(?<comment>[^"]*)" )?',
    '(?:-m (?<module>tcp|udp) --dport (?<port>\\d{1,5})(?::(?<last>\\d{1,5}))? )?',
    '(?:-m conntrack (?:! )?--ctstate (?:NEW|DNAT) )?',
    '(?:-m mark --mark (?<mark>0x[0-9a-f]{1,8})/\\k<mark> )?',
    '-j (?:(?<verdict>ACCEPT|DROP|RETURN|REJECT --reject-with icmp6?-port-unreachable)|(?<chain>KUBE-\\S+)|',
    'DNAT --to-destination (?:(?<to4>[0-9.]+)|\\[(?<to6>[0-9a-f:.]+)\\])?:(?<toPort>\\d{1,5}))$',
  ].join(''),
);

/** Throws for a text that any line makes other than a transaction in chains of ours, with values that are valid. */
export function checkTransaction(text: string, family: IpFamily): void {
  const lines = text.split('\n');
  assert.match(lines[0] ?? '', TABLE);
  assert.deepEqual(lines.slice(-2), ['COMMIT', '']);
  for (const line of lines.slice(1, -2)) {
    assert.ok(Buffer.byteLength(line) < 1_200, `a line of ${line.length} characters`);
    try {
      checkLine(line, family);
    } catch (error) {
      throw new Error(`no line of ours: ${JSON.stringify(line)}: ${(error as Error).message}`);
    }
  }
}

export function checkLine(line: string, family: IpFamily): void {
  const [, declared] = /^:(\S+) - \[0:0\]$/.exec(line) ?? /^-X (\S+)$/.exec(line) ?? [];
  if (declared !== undefined) {
    assert.match(declared, OWN_CHAIN);
    return;
  }
  const [, chain = '', spec = ''] = /^-(?:A|D|I) (\S+)(?: \d)? (.*)$/.exec(line) ?? [];
  if (JUMPS.some((jump) => jump.from === chain && jump.spec === spec)) return;
  assert.match(chain, OWN_CHAIN);
  assert.match(line, /^-A /);
  checkRule(spec, family);
}

function checkRule(spec: string, family: IpFamily): void {
  const parts = RULE.exec(spec)?.groups;
  assert.ok(parts, 'it has no known form');
  for (const network of [parts['source'], parts['destination']])
    if (network !== undefined) checkNetwork(network, family);
  assert.equal(parts['module'] ?? parts['protocol'], parts['protocol']);
  for (const port of [parts['port'], parts['last'], parts['toPort']]) if (port !== undefined) checkPort(port);
  if (parts['comment'] !== undefined && parts['comment'] !== OWN_COMMENT) checkName(parts['comment']);
  if (parts['chain'] !== undefined) assert.match(parts['chain'], OWN_CHAIN);
  const to = parts['to4'] ?? parts['to6'];
  if (to !== undefined) checkAddress(to, family);
}

function checkNetwork(network: string, family: IpFamily): void {
  const [, address = '', length = ''] = /^([^/]+)\/(0|[1-9]\d{0,2})$/.exec(network) ?? [];
  checkAddress(address, family);
  assert.ok(Number(length) <= (family === 'IPv4' ? 32 : 128), network);
}

function checkAddress(address: string, family: IpFamily): void {
  assert.equal(isIP(address), family === 'IPv4' ? 4 : 6, address);
  const type = family === 'IPv4' ? 'ipv4' : 'ipv6';
  assert.equal(new SocketAddress({ address, family: type }).address, address, 'as the kernel prints it');
}

function checkPort(port: string): void {
  assert.equal(String(Number(port)), port);
  assert.ok(Number(port) <= 65_535, port);
}

/** A Service port, and what a rule says of it. */
export function checkName(comment: string): void {
  const about =
    / (?:local(?: proxy port| retired at \d{1,12})?|proxy port|retired at \d{1,12}|health check node port)$/;
  const [, namespace = '', service = '', port] = /^([^/]*)\/([^:]*)(?::(.*))?$/s.exec(comment.replace(about, '')) ?? [];
  for (const label of [namespace, service, ...(port === undefined ? [] : [port])]) assert.match(label, LABEL, comment);
}
