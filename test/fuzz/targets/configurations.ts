import assert from 'node:assert/strict';
import { configure } from '../../../src/config/configure.ts';
import { UsageError } from '../../../src/config/usage-error.ts';
import { mutateYaml } from '../mutate.ts';
import type { OpenTarget } from '../target.ts';

/* A KubeProxyConfiguration → what to run with, which says the same when it is written and read again; or a sentence. */

export const open: OpenTarget = () => ({
  make: mutateYaml,

  run(input) {
    const first = fieldsOf(input.toString());
    if (first === undefined) return;
    const written = configure(flags({ 'write-config-to': '/etc/out' }), () => input.toString());
    assert.ok(written.kind === 'write-config');
    assert.deepEqual(fieldsOf(written.text), first);
  },
});

function flags(more: Readonly<Record<string, string>>): ReadonlyMap<string, readonly string[]> {
  return new Map(Object.entries({ config: '/etc/in', ...more }).map(([name, text]) => [name, [text]]));
}

/** `undefined` where it is refused. */
function fieldsOf(text: string): ReadonlyMap<string, unknown> | undefined {
  let line: ReturnType<typeof configure>;
  try {
    line = configure(flags({ manifests: '/etc/services' }), () => text);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    assert.doesNotMatch(error.message, /\p{Cc}/u);
    assert.ok(error.message.length < 2_000, error.message);
    return undefined;
  }
  assert.ok(line.kind === 'run', line.kind);
  const { healthzAddress, proxyPortRange, dataPlane, source } = line.config;
  assert.equal(source.kind, 'manifests');
  for (const port of [healthzAddress?.port, proxyPortRange?.first, proxyPortRange?.last]) {
    assert.ok(port === undefined || (Number.isInteger(port) && port >= 0 && port <= 65_535), `port ${port}`);
  }
  for (const [name, value] of Object.entries(dataPlane)) {
    assert.ok(typeof value !== 'number' || (Number.isFinite(value) && value >= 0), `${name} ${value}`);
  }
  return line.config.fields;
}
