import { readFileSync, writeFileSync } from 'node:fs';
import { Modules } from './modules.ts';

/*
 * `node code-cache.ts MODULE ... --version` runs main.js with that argument, and writes beside each of these modules in
 * the current folder what V8 has made of it by then: of those that were needed, all functions that were called, which is
 * most of a start.
 */

const names = process.argv.slice(2, -1);
const modules = new Modules((name) => ({ source: readFileSync(name, 'latin1') }));

process.on('exit', () => {
  for (const name of names) {
    const script = modules.scripts.get(name) ?? modules.compile(name);
    writeFileSync(`${name}.cache`, script.createCachedData());
  }
});
// The real one may hang (ADR 15), and there is nothing here that would keep it from being run dry.
process.exit = (() => {}) as unknown as typeof process.exit;
process.argv.splice(2, names.length);
modules.require('./main.js');
