import { VERSION } from '../config/version.ts';
import type { NodeView } from '../model/view.ts';
import { messageOf, printable } from '../util/text.ts';
import { command } from './command.ts';
import { printableJson } from './format.ts';
import { askOne, CONTROL_SOCKET, JSON_OUTPUT } from './shared.ts';

export const SHOW_VERSION = command({
  name: 'version',
  summary: 'show the version of this program and of the proxy that is running',
  options: { ...JSON_OUTPUT, ...CONTROL_SOCKET },
  // A proxy that is not running, or that this user may not ask, is an answer too.
  run: async (given, terminal, { connect }) => {
    const running = await askOne(connect(given['control-socket']), 'node', {}).catch(messageOf);
    terminal.out(given.output === 'json' ? asJson(running) : asText(running));
    return 0;
  },
});

type Running = NodeView | string;

function asText(running: Running): string {
  const proxy =
    typeof running === 'string'
      ? `not known (${running})`
      : `v${running.version} (process ${running.pid}, Node.js ${running.nodeVersion}, ${running.engine} engine)`;
  return `This program:  v${VERSION}\nRunning proxy: ${printable(proxy)}\n`;
}

function asJson(running: Running): string {
  const proxy =
    typeof running === 'string'
      ? { error: running }
      : { version: running.version, nodeVersion: running.nodeVersion, pid: running.pid, engine: running.engine };
  return printableJson({ program: { version: VERSION }, proxy });
}
