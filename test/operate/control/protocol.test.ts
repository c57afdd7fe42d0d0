import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type CommandName, decodeQuery, encodeQuery, RequestError } from '../../../src/operate/control/protocol.ts';

function decoded(command: CommandName, query: string) {
  return decodeQuery(command, new URLSearchParams(query));
}

const POD = { address: '10.244.0.1', port: 1 };

describe('a query', () => {
  const good: readonly (readonly [command: CommandName, query: string, decoded: object])[] = [
    ['node', '', {}],
    ['services', 'summary=true&namespace=default&service=web', { summary: true, namespace: 'default', service: 'web' }],
    ['services', 'service=7', { service: '7' }],
    ['connections', '', {}],
    ['tail', 'namespace=default&service=web&port=80', { namespace: 'default', service: 'web', port: '80' }],
    [
      'explain',
      'address=10.96.0.1&port=443&protocol=TCP&client=10.244.0.1',
      { address: '10.96.0.1', port: 443, protocol: 'TCP', client: '10.244.0.1' },
    ],
    ['explain', 'address=FD00:0:0::7&port=53&protocol=UDP', { address: 'fd00::7', port: 53, protocol: 'UDP' }],
    ['endpoint', 'endpoint=10.244.0.1:1', { endpoint: POD }],
    ['drain', 'endpoint=10.244.0.1:1', { endpoint: POD }],
    ['drain', 'endpoint=10.244.0.1:1&forced=true', { endpoint: POD, forced: true }],
    ['undrain', 'endpoint=[fd00::1]:65535', { endpoint: { address: 'fd00::1', port: 65_535 } }],
    ['weight', 'endpoint=10.244.0.1:1&weight=65535', { endpoint: POD, weight: 65_535 }],
    ['weight', 'endpoint=10.244.0.1:1&weight=default', { endpoint: POD, weight: 'default' }],
    ['log-level', 'verbosity=10', { verbosity: 10 }],
  ];
  for (const [command, query, expected] of good) {
    test(`${command} ${query} is understood, and is what a client writes`, () => {
      assert.deepEqual(decoded(command, query), expected);
      assert.deepEqual(decoded(command, encodeQuery(expected)), expected);
    });
  }

  const bad: readonly (readonly [command: CommandName, query: string, complaint: RegExp])[] = [
    ['node', 'x=1', /^\/v1\/node has no parameter "x"; it takes none$/],
    ['services', 'sumary=true', /^\/v1\/services has no parameter "sumary"; it takes namespace, service, summary$/],
    ['connections', 'summary=true', /no parameter "summary"/],
    ['services', '__proto__=1', /no parameter "__proto__"/],
    ['services', 'constructor=1', /no parameter "constructor"/],
    ['services', 'x'.repeat(10_000), /no parameter "x{100}"…; it takes/],
    ['services', 'service=a&service=b', /service is given twice/],
    ['services', 'service=', /service is ""; expected a name/],
    ['services', `service=${'x'.repeat(254)}`, /service is "x{100}"…; expected a name/],
    ['services', 'namespace=%zz', /namespace is "%zz"; expected a name/],
    ['services', 'namespace=%00', /namespace is .*; expected a name/],
    ['tail', 'port=a%0Ab', /port is .*; expected a name/],
    ['services', 'summary=yes', /summary is "yes"; expected true or false/],
    ['explain', '', /address is missing/],
    ['explain', 'address=10.96.0.1;reboot&port=1&protocol=TCP', /address is .*; expected an IP address/],
    ['explain', 'address=fe80::1%25eth0&port=1&protocol=TCP', /address is .*; expected an IP address/],
    ['explain', 'address=10.96.0.1&port=0&protocol=TCP', /port is "0"; expected an integer from 1 to 65535/],
    ['explain', 'address=10.96.0.1&port=80.5&protocol=TCP', /port is "80.5"; expected an integer/],
    ['explain', 'address=10.96.0.1&port=8e1&protocol=TCP', /port is "8e1"; expected an integer/],
    ['explain', 'address=10.96.0.1&port=80&protocol=SCTP', /protocol is "SCTP"; expected TCP or UDP/],
    ['explain', 'address=10.96.0.1&port=80&protocol=TCP&client=me', /client is "me"; expected an IP address/],
    ['drain', '', /endpoint is missing; expected an address with a port/],
    ['drain', 'endpoint=10.244.0:80', /endpoint is .*; expected an address with a port, such as/],
    ['drain', 'endpoint=10.244.0.1:80&forced=1', /forced is "1"; expected true or false/],
    ['undrain', 'endpoint=10.244.0.1:65536', /endpoint is .*; expected an address with a port/],
    ['weight', 'endpoint=10.244.0.1:80', /weight is missing/],
    ['weight', 'endpoint=10.244.0.1:80&weight=', /weight is ""; expected an integer/],
    ['weight', 'endpoint=10.244.0.1:80&weight=65536', /weight is "65536"; expected an integer/],
    ['log-level', 'verbosity=11', /verbosity is "11"; expected an integer from 0 to 10/],
    ['log-level', 'verbosity=-1', /verbosity is .*; expected an integer/],
  ];
  for (const [command, query, complaint] of bad) {
    test(`${command} ${query.slice(0, 80)} is refused`, () => {
      assert.throws(
        () => decoded(command, query),
        (error) => error instanceof RequestError && error.status === 400 && complaint.test(error.message),
      );
    });
  }
});
