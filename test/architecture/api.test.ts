import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { COMMAND_NAMES, pathOf, ROUTES } from '../../src/operate/control/protocol.ts';

/** "GET /v1/services: namespace, service" */
const ROW = /^\| `((?:GET|POST) \/\S+)` \|([^|]*)\|/gm;

test('docs/api.md has each route of /v1 with its method and parameters, and no other', () => {
  const text = readFileSync('docs/api.md', 'utf8');
  const documented = [...text.matchAll(ROW)].map(([, request, parameters = '']) => {
    const names = [...parameters.matchAll(/`(\w+)`/g)].map(([, name]) => name);
    return `${request}: ${names.join(', ')}`;
  });
  const served = COMMAND_NAMES.map((command) => {
    const { method, parameters } = ROUTES[command];
    return `${method} ${pathOf(command)}: ${Object.keys(parameters).join(', ')}`;
  });
  assert.deepEqual(documented, served);
});
