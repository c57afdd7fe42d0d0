import { VERSION } from '../../config/version.ts';
import type { NodeView } from '../../model/view.ts';
import { messageOf, printable } from '../../util/text.ts';
import { parseArguments } from './arguments.ts';
import { controlSocketOf, JSON_OUTPUT } from './control-options.ts';
import { printableJson } from './format/json.ts';
import { nodeOf } from './node-of.ts';
import type { RunSubcommand } from './subcommand.ts';
import { SHOW_VERSION } from './subcommands.ts';

/** A proxy that is not running, or not for this user to ask, is an answer too. */
export const showVersion: RunSubcommand = async (argv, terminal, { connect }) => {
  const given = parseArguments(SHOW_VERSION, argv);
  const running = await nodeOf(connect(controlSocketOf(given))).catch(messageOf);
  terminal.out(given.values.has(JSON_OUTPUT.name) ? asJson(running) : asText(running));
  return 0;
};

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
