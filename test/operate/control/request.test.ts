import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { decodeRequest, RequestError } from '../../../src/operate/control/request.ts';

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
    ['drain', { endpoint: { address: '10.244.0.1', port: 1 } }, { endpoint: { address: '10.244.0.1', port: 1 } }],
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
    [['node'], {}, /knows no command {…};/],
    ['x'.repeat(10_000), {}, /knows no command "x{39}…; use/],
    ['node', undefined, /params must be an object/],
    ['node', null, /params must be an object/],
    ['node', [], /params must be an object/],
    ['services', { namespace: 7 }, /namespace must be a name/],
    ['services', { service: 'x'.repeat(254) }, /service must be a name/],
    ['services', { summary: 'yes' }, /summary must be true or false/],
    ['explain', {}, /address must be an IP address/],
    ['explain', { address: '10.96.0.1; reboot', port: 1, protocol: 'TCP' }, /address must be an IP address/],
    ['explain', { address: 'fe80::1%eth0', port: 1, protocol: 'TCP' }, /address must be an IP address/],
    ['explain', { address: '10.96.0.1', port: 0, protocol: 'TCP' }, /port must be a whole number from 1 to 65535/],
    ['explain', { address: '10.96.0.1', port: '80', protocol: 'TCP' }, /port must be/],
    ['explain', { address: '10.96.0.1', port: 80.5, protocol: 'TCP' }, /port must be/],
    ['explain', { address: '10.96.0.1', port: 80, protocol: 'SCTP' }, /protocol must be TCP or UDP/],
    ['explain', { address: '10.96.0.1', port: 80, protocol: 'TCP', client: 'me' }, /client must be an IP address/],
    ['explain', { address: '10.96.0.1', port: 80, protocol: 'TCP', client: 'fd00::1' }, /of one address family/],
    ['drain', {}, /endpoint must be an object/],
    ['drain', { endpoint: '10.244.0.1:80' }, /endpoint must be an object/],
    ['drain', { endpoint: { address: '10.244.0', port: 80 } }, /address must be an IP address/],
    ['undrain', { endpoint: { address: '10.244.0.1', port: 65_536 } }, /port must be/],
    ['log-level', { verbosity: 11 }, /verbosity must be a whole number from 0 to 10/],
    ['log-level', { verbosity: -1 }, /verbosity must be/],
    ['log-level', { verbosity: null }, /verbosity must be/],
  ];
  for (const [command, params, complaint] of bad) {
    test(`${JSON.stringify(command).slice(0, 30)} ${JSON.stringify(params)?.slice(0, 80)} is refused`, () => {
      assert.throws(
        () => decodeRequest(JSON.stringify({ v: 1, command, params })),
        (error) => error instanceof RequestError && complaint.test(error.message),
      );
    });
  }

  test('of another version, or of none, is refused before anything else of it is read', () => {
    for (const v of [0, 2, '1', undefined, null]) {
      assert.throws(
        () => decodeRequest(JSON.stringify({ v, command: 'nonsense' })),
        /version .* of the control protocol/,
      );
    }
  });

  test('that is too deep to be printed is refused as any other', () => {
    const deep = '['.repeat(30_000) + ']'.repeat(30_000);
    for (const line of [`{"v":${deep}}`, `{"v":1,"command":${deep}}`, `{"v":1,"command":"node","params":${deep}}`]) {
      assert.throws(() => decodeRequest(line), RequestError);
    }
  });

  test('that is no object of JSON is refused', () => {
    for (const line of ['', 'node', '"node"', '7', 'null', '[]', '{"v":1']) {
      assert.throws(() => decodeRequest(line), RequestError, line);
    }
  });
});
