import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { decodeRequest, RequestError } from '../../../src/operate/control/protocol.ts';

function decoded(command: string, params: unknown) {
  return decodeRequest(JSON.stringify({ v: 1, command, params })).params;
}

describe('a request', () => {
  const good: readonly (readonly [command: string, params: unknown, decoded: unknown])[] = [
    ['node', {}, {}],
    ['node', { surplus: 1 }, {}],
    [
      'services',
      { namespace: 'default', service: 'web', summary: true },
      { namespace: 'default', service: 'web', summary: true },
    ],
    ['services', { service: 'web', sumary: true }, { service: 'web' }],
    ['connections', {}, {}],
    [
      'explain',
      { address: '10.96.0.1', port: 443, protocol: 'TCP', client: '10.244.0.1', x: [] },
      { address: '10.96.0.1', port: 443, protocol: 'TCP', client: '10.244.0.1' },
    ],
    [
      'explain',
      { address: 'FD00:0:0::7', port: 53, protocol: 'UDP' },
      { address: 'fd00::7', port: 53, protocol: 'UDP' },
    ],
    [
      'drain',
      { endpoint: { address: '10.244.0.1', port: 1 } },
      { endpoint: { address: '10.244.0.1', port: 1 }, isAgain: false, forced: false },
    ],
    [
      'drain',
      { endpoint: { address: '10.244.0.1', port: 1 }, forced: true },
      { endpoint: { address: '10.244.0.1', port: 1 }, isAgain: false, forced: true },
    ],
    ['undrain', { endpoint: { address: 'fd00::1', port: 65_535 } }, { endpoint: { address: 'fd00::1', port: 65_535 } }],
    ['log-level', { verbosity: 10 }, { verbosity: 10 }],
  ];
  for (const [command, params, expected] of good) {
    test(`${command} ${JSON.stringify(params)} is understood`, () => {
      assert.deepEqual(decoded(command, params), expected);
    });
  }

  const bad: readonly (readonly [command: unknown, params: unknown, complaint: RegExp])[] = [
    ['reboot', {}, /knows no command "reboot"/],
    ['constructor', {}, /knows no command "constructor"/],
    ['__proto__', {}, /knows no command/],
    [['node'], {}, /knows no command a list;/],
    ['x'.repeat(10_000), {}, /knows no command "x{100}"…; use/],
    ['services', [], /params is a list; expected an object/],
    ['services', { namespace: 7 }, /params.namespace is 7; expected a string/],
    ['services', { service: 'x'.repeat(254) }, /params.service is "x{100}"…; expected a name/],
    ['services', { summary: 'yes' }, /params.summary is "yes"; expected true or false/],
    ['explain', {}, /params.address is missing/],
    ['explain', { address: '10.96.0.1; reboot', port: 1, protocol: 'TCP' }, /address is .*; expected an IP address/],
    ['explain', { address: 'fe80::1%eth0', port: 1, protocol: 'TCP' }, /address is .*; expected an IP address/],
    ['explain', { address: '10.96.0.1', port: 0, protocol: 'TCP' }, /port is 0; expected an integer from 1 to 65535/],
    ['explain', { address: '10.96.0.1', port: '80', protocol: 'TCP' }, /port is .*; expected an integer/],
    ['explain', { address: '10.96.0.1', port: 80.5, protocol: 'TCP' }, /port is .*; expected an integer/],
    ['explain', { address: '10.96.0.1', port: 80, protocol: 'SCTP' }, /protocol is "SCTP"; expected TCP or UDP/],
    [
      'explain',
      { address: '10.96.0.1', port: 80, protocol: 'TCP', client: 'me' },
      /client is "me"; expected an IP address/,
    ],
    ['explain', { address: '10.96.0.1', port: 80, protocol: 'TCP', client: 'fd00::1' }, /expected the address family/],
    ['drain', {}, /endpoint.address is missing/],
    ['drain', { endpoint: '10.244.0.1:80' }, /endpoint is .*; expected an object/],
    ['drain', { endpoint: { address: '10.244.0', port: 80 } }, /address is .*; expected an IP address/],
    ['undrain', { endpoint: { address: '10.244.0.1', port: 65_536 } }, /port is .*; expected an integer/],
    ['log-level', { verbosity: 11 }, /verbosity is 11; expected an integer from 0 to 10/],
    ['log-level', { verbosity: -1 }, /verbosity is .*; expected an integer/],
    ['log-level', { verbosity: null }, /verbosity is .*; expected an integer/],
  ];
  for (const [command, params, complaint] of bad) {
    test(`${JSON.stringify(command).slice(0, 30)} ${JSON.stringify(params)?.slice(0, 80)} is refused`, () => {
      assert.throws(
        () => decodeRequest(JSON.stringify({ v: 1, command, params })),
        (error) => error instanceof RequestError && complaint.test(error.message),
      );
    });
  }

  test('of another version, or of none, is refused before the rest is read', () => {
    for (const v of [0, 2, '1', undefined, null]) {
      assert.throws(
        () => decodeRequest(JSON.stringify({ v, command: 'nonsense' })),
        /version .* of the control protocol/,
      );
    }
  });

  test('that is nested too deeply to be printed is refused as well', () => {
    const deep = '['.repeat(30_000) + ']'.repeat(30_000);
    for (const line of [
      `{"v":${deep}}`,
      `{"v":1,"command":${deep}}`,
      `{"v":1,"command":"services","params":${deep}}`,
    ]) {
      assert.throws(() => decodeRequest(line), RequestError);
    }
  });

  test('that is not a JSON object is refused', () => {
    for (const line of ['', 'node', '"node"', '7', 'null', '[]', '{"v":1']) {
      assert.throws(() => decodeRequest(line), RequestError, line);
    }
  });
});
