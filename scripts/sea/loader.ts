import { closeSync, writeFileSync } from 'node:fs';
import { getRawAsset } from 'node:sea';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { HELPER_PROCESS } from '../../src/iptables/helper-command.ts';
import { addonDescriptor } from './addon-file.ts';
import { LATER_FLAGS } from './flags.ts';
import { Modules } from './modules.ts';

/*
 * The executable's own program: it runs one of the bundles beside it. Node itself has no means for that: a single
 * executable application is one script.
 */

/** By then nearly all code is loaded: what is not has to be compiled again. */
const START_MS = 1000;

/** Not a copy of it. */
function asset(name: string): Buffer {
  return Buffer.from(getRawAsset(name) as ArrayBuffer);
}

try {
  // Node calls its main thread "MainThread", by which nobody would find us.
  writeFileSync('/proc/self/comm', 'kube-userspace-proxy');
} catch {
  // It only looks different.
}
const { require } = new Modules((name) => {
  return { source: asset(name).toString('latin1'), cachedData: asset(`${name}.cache`) };
});

function runHelper(): void {
  const addon = addonDescriptor();
  // It would be a megabyte for nothing.
  if (addon !== undefined) closeSync(addon);
  setFlagsFromString('--expose-gc');
  globalThis.gc = runInNewContext('gc');
  require('./iptables-helper.js');
}

function runProxy(): void {
  setTimeout(() => LATER_FLAGS.forEach(setFlagsFromString), START_MS).unref();
  require('./main.js');
}

if (process.argv0 === HELPER_PROCESS) runHelper();
else runProxy();
