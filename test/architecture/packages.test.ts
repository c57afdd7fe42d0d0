import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

interface Locked {
  readonly resolved?: string;
  readonly integrity?: string;
  readonly hasInstallScript?: boolean;
}

const { packages } = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8')) as {
  readonly packages: Readonly<Record<string, Locked>>;
};
const locked = Object.entries(packages).filter(([path]) => path !== '');

test('no package gains an install script unseen', () => {
  const withScript = locked.filter(([, { hasInstallScript }]) => hasInstallScript).map(([path]) => path);
  // They work without theirs, and none is run (npm ci --ignore-scripts). Look at what a new one does before adding it.
  assert.deepEqual(withScript, ['node_modules/esbuild', 'node_modules/koffi']);
});

test('every installed package comes from the registry, with a hash of its content', () => {
  // Without `resolved`, npm asks the registry.
  const installed = locked.filter(([path]) => existsSync(new URL(`../../${path}`, import.meta.url)));
  assert.ok(installed.length > 50);
  const others = installed.filter(
    ([, { resolved, integrity }]) =>
      (resolved !== undefined && !resolved.startsWith('https://registry.npmjs.org/')) ||
      !integrity?.startsWith('sha512-'),
  );
  assert.deepEqual(others, []);
});
