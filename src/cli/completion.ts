import { basename } from 'node:path';
import { UsageError } from '../config/usage-error.ts';
import { DEFAULT_CONTROL_SOCKET } from '../config/values.ts';
import { PROGRAM } from '../config/version.ts';
import { printable } from '../util/text.ts';
import { withDeadline } from '../util/wait.ts';
import { type Command, command, type Tools } from './command.ts';
import { completions } from './near.ts';

/* What a shell offers for a word that is half typed. */

/** The scripts call the program with this, the program's name (not in fish), and what was typed. */
export const COMPLETIONS = '--get-yargs-completions';
const FUNCTION = `_${PROGRAM.replaceAll('-', '_')}`;

/** Each names its shell in SHELL: the form of the offers depends on it. */
const SCRIPTS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    bash: `${FUNCTION}()
{
    # Bash splits words at ":" and "=". Addresses have colons, so the words come from the line itself.
    local line="\${COMP_LINE:0:COMP_POINT}" words typed each
    read -ra words <<<"$line"
    if [[ $line == *[[:space:]] ]]; then words+=(''); fi
    typed="\${words[-1]}"
    COMPREPLY=()
    while IFS= read -r each; do
        # Bash replaces only what follows the last split, which is "$2".
        if [[ $each == "$typed"* ]]; then COMPREPLY+=("\${each#"\${typed%"$2"}"}"); fi
    done < <(SHELL=bash ${PROGRAM} ${COMPLETIONS} "\${words[@]}" 2>/dev/null)
}
complete -o bashdefault -o default -F ${FUNCTION} ${PROGRAM}
`,
    zsh: `#compdef ${PROGRAM}
${FUNCTION}()
{
  local reply
  local si=$IFS
  IFS=$'\\n' reply=($(SHELL=zsh ${PROGRAM} ${COMPLETIONS} "\${words[@]}" 2>/dev/null))
  IFS=$si
  if [[ \${#reply} -gt 0 ]]; then
    _describe 'values' reply
  else
    _default
  fi
}
if [[ "\${zsh_eval_context[-1]}" == "loadautofunc" ]]; then
  ${FUNCTION} "$@"
else
  compdef ${FUNCTION} ${PROGRAM}
fi
`,
    fish: `complete -f -c ${PROGRAM} -a '(env SHELL=fish ${PROGRAM} ${COMPLETIONS} (commandline -o)[2..-1])'
`,
  }),
);

export const COMPLETION = command({
  name: 'completion',
  summary: 'print a completion script for bash, zsh or fish; without SHELL for the one in $SHELL',
  argument: '[SHELL]',
  options: {},
  examples: [['completion bash >>~/.bashrc', 'completes subcommands, flags and names in each new bash']],
  run: async ({ argument }, terminal) => {
    const own = basename(process.env['SHELL'] ?? '');
    const script = SCRIPTS.get(argument || (SCRIPTS.has(own) ? own : 'bash'));
    if (script === undefined) throw new UsageError(`${JSON.stringify(argument)}: must be bash, zsh or fish`);
    terminal.out(script);
    return 0;
  },
});

/** A shell does not wait longer for names. */
const COMPLETION_MS = 1_000;

/** `output`, which is what yargs offers, and names that the proxy knows. */
export async function completed(
  output: string,
  argv: readonly string[],
  commands: readonly Command[],
  { connect, clock }: Pick<Tools, 'connect' | 'clock'>,
): Promise<string> {
  // yargs writes a short option with two dashes.
  const offered = output.split('\n').filter((line) => !/^--\w(?::|$)/.test(line));
  const byName = new Map(commands.map((each) => [each.name, each]));
  const at = argv.findIndex((word) => byName.has(word));
  const words = argv.slice(at + 1);
  const { completes = [] } = byName.get(argv[at] ?? '') ?? {};
  const [typed = '', before = ''] = [words.at(-1), words.at(-2)];
  if (completes.length === 0 || typed.startsWith('-') || /^-[^=]*$/.test(before)) return offered.join('\n');
  const socket = /^--control-socket[=\n](.+)$/m.exec(words.join('\n'))?.[1] ?? DEFAULT_CONTROL_SOCKET;
  try {
    const names = await withDeadline(completions(completes, typed, connect(socket)), {
      clock,
      ms: COMPLETION_MS,
      late: 'busy',
    });
    // zsh takes what follows a colon for a description.
    const isZsh = /zsh/.test(process.env['ZSH_NAME'] ?? process.env['SHELL'] ?? '');
    const shown = names.map((each) => printable(isZsh ? each.replaceAll(':', '\\:') : each));
    return [...shown, ...offered].filter(Boolean).join('\n');
  } catch {
    return offered.join('\n');
  }
}
