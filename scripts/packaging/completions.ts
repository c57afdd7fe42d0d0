import type { Option, Program } from './program.ts';

const NAME = 'kube-userspace-proxy';

/** For bash, without the functions of the package bash-completion. */
export function bashCompletion({ groups, commands }: Program): string {
  const flags = groups.flatMap(({ options }) => options);
  const words = [...commands.map(({ name }) => name), ...flags.flatMap(({ names }) => names)];
  return `# bash completion for ${NAME}
_kube_userspace_proxy() {
  local current=\${COMP_WORDS[COMP_CWORD]} option=\${COMP_WORDS[COMP_CWORD - 1]} command= words=
  # To bash, "=" is a word of its own.
  if [[ $current == = ]]; then
    current=
  elif [[ $option == = ]]; then
    option=\${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  if ((COMP_CWORD > 1)); then
    case \${COMP_WORDS[1]} in
      ${commands.map(({ name }) => name).join(' | ')}) command=\${COMP_WORDS[1]} ;;
    esac
  fi
  case $command:$option in
${[...bashValues('', flags), ...commands.flatMap((command) => bashValues(command.name, command.accepts))].join('\n')}
  esac
  case $command in
${commands.map(({ name, accepts }) => `    ${name}) words=${quoted(accepts.flatMap(({ names }) => names).join(' '))} ;;`).join('\n')}
    *) words=${quoted(words.join(' '))} ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -F _kube_userspace_proxy ${NAME}
`;
}

/** What to do behind each option that takes a value. */
function bashValues(command: string, options: readonly Option[]): string[] {
  const behind = (some: readonly Option[], ...actions: readonly string[]) => {
    const patterns = some.flatMap(({ names }) => names.map((name) => `${command}:${name}`));
    const lines = [...actions, 'return', ';;'].map((line) => `      ${line}`);
    return patterns.length === 0 ? [] : [`    ${patterns.join(' | ')})`, ...lines];
  };
  const valued = options.filter(({ value }) => value !== undefined);
  return [
    ...valued.flatMap((option) =>
      behind(
        option.value?.choices ? [option] : [],
        `mapfile -t COMPREPLY < <(compgen -W ${quoted(option.value?.choices?.join(' ') ?? '')} -- "$current")`,
      ),
    ),
    ...behind(
      valued.filter(({ value }) => value?.placeholder === 'PATH'),
      'compopt -o filenames',
      'mapfile -t COMPREPLY < <(compgen -f -- "$current")',
    ),
    // Of any other value nothing is known.
    ...behind(valued.filter(({ value }) => !value?.choices && value?.placeholder !== 'PATH')),
  ];
}

export function zshCompletion({ groups, commands }: Program): string {
  const flags = groups.flatMap(({ options }) => options);
  return `#compdef ${NAME}

local -a commands flags
commands=(
${commands.map(({ name, summary }) => `  ${quoted(`${name}:${summary.replaceAll(':', '\\:')}`)}`).join('\n')}
)
flags=(
${zshSpecifications(flags)}
)

if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
  _describe command commands
  return
fi
case $words[2] in
${commands
  .map(
    ({ name, accepts, positional }) => `  ${name})
    shift words
    ((CURRENT--))
    _arguments -s -S \\
${zshSpecifications(accepts, ' \\')}${positional === undefined ? '' : `      ${quoted(`*:${positional.replaceAll(':', '\\:')}: `)}`}
    ;;`,
  )
  .join('\n')}
  *)
    _arguments -S $flags
    ;;
esac
`;
}

function zshSpecifications(options: readonly Option[], end = ''): string {
  return options
    .flatMap((option) => option.names.map((name) => `      ${quoted(zshSpecification(name, option))}${end}\n`))
    .join('');
}

/** As in `--dataplane=[engine that carries the traffic]:value:(auto fast node)`. */
function zshSpecification(name: string, { describe, value, isList }: Option): string {
  const explained = `[${brief(describe).replaceAll(/[[\]\\:]/g, '\\$&')}]`;
  const repeated = isList ? '*' : '';
  if (value === undefined) return `${repeated}${name}${explained}`;
  const { placeholder, choices } = value;
  const action = choices ? `(${choices.join(' ')})` : placeholder === 'PATH' ? '_files' : ' ';
  return `${repeated}${name}${name.startsWith('--') ? '=' : ''}${explained}:${placeholder}:${action}`;
}

export function fishCompletion({ groups, commands }: Program): string {
  const isFirst = `-n ${quoted('test (count (commandline -opc)) -eq 1')}`;
  const isRun = `-n ${quoted(`not __fish_seen_subcommand_from ${commands.map(({ name }) => name).join(' ')}`)}`;
  return `# fish completion for ${NAME}
complete -c ${NAME} -f
${[
  ...commands.map(({ name, summary }) => `complete -c ${NAME} ${isFirst} -a ${name} -d ${fishQuoted(summary)}`),
  ...groups.flatMap(({ options }) => options.map((option) => fishLine(isRun, option))),
  ...commands.flatMap(({ name, accepts }) =>
    accepts.map((option) => fishLine(`-n ${quoted(`__fish_seen_subcommand_from ${name}`)}`, option)),
  ),
].join('\n')}
`;
}

function fishLine(condition: string, { names, describe, value }: Option): string {
  const spelled = names.map((name) => (name.startsWith('--') ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const valued =
    value &&
    (value.placeholder === 'PATH' ? '-r -F' : value.choices ? `-x -a ${quoted(value.choices.join(' '))}` : '-x');
  return ['complete', '-c', NAME, condition, ...spelled, valued, '-d', fishQuoted(brief(describe))]
    .filter(Boolean)
    .join(' ');
}

/** There is one line for it. */
function brief(text: string): string {
  return text.split('; ', 1)[0] ?? text;
}

/** For sh and its kin. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll(/['\\]/g, '\\$&')}'`;
}
