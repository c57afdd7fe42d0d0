import type { Options } from 'yargs';
import type { Command, OptionTable } from '../../src/cli/command.ts';
import { FLAG_OPTIONS } from '../../src/cli/parser.ts';
import { ACCEPTED_FLAGS } from '../../src/config/accepted.ts';
import { DEFAULT_CONTROL_SOCKET } from '../../src/config/values.ts';

export interface ManualOptions {
  readonly version: string;
  /** In seconds since 1970, UTC. */
  readonly epoch: number;
}

const NAME = 'kube-userspace-proxy';

/** The page of section 8, in man(7). */
export function manual(commands: readonly Command[], { version, epoch }: ManualOptions): string {
  const date = new Date(epoch * 1000).toISOString().slice(0, 10);
  return `${[
    `.TH ${NAME.toUpperCase()} 8 ${date} "${NAME} ${version}" "System Administration"`,
    '.SH NAME',
    escaped(`${NAME} - TCP and UDP load balancer for Kubernetes Services on a node`),
    '.SH SYNOPSIS',
    ...synopsis([NAME], '[--kubeconfig FILE | --manifests PATH] [flags]'),
    ...commands.flatMap((command) => synopsis([NAME, command.name], argumentsOf(command))),
    ...DESCRIPTION,
    '.SH COMMANDS',
    ...paragraph(COMMANDS),
    ...commands.flatMap(commandSection),
    '.SH OPTIONS',
    ...paragraph('These are for running the proxy. A wrong one ends the program before anything is touched.'),
    ...groupSections(),
    ...groupSection('General', { help: HELP, version: { type: 'boolean', describe: 'show the version' } }),
    '.SS Without effect',
    ...paragraph(`Flags of kube-proxy for other modes are checked, and named in the log: ${accepted().join(', ')}.`),
    ...REST,
  ].join('\n')}\n`;
}

const DESCRIPTION = [
  '.SH DESCRIPTION',
  ...paragraph(
    'Balances the connections to Kubernetes Services over their endpoints, on this node, and tries the next endpoint when ' +
      'one does not answer: the userspace mode of kube-proxy. Rules of iptables lead the traffic to a local port for each ' +
      'Service port. One proxy per node: a kube-proxy beside it would fight for the same rules.',
  ),
  ...paragraph(
    'Services come from an API server or from files. To reach the API server it must be named by its real address, for ' +
      'its ClusterIP works only once a proxy runs.',
  ),
];

const COMMANDS =
  'These ask the proxy that runs on this node, as root, but for check, which needs none. Each has --help.';

const REST = [
  '.SH EXIT STATUS',
  ...tagged(['0'], 'It was asked to end, or did what it was started for.'),
  ...tagged(['1'], 'It could not start or do that; one line on standard error says why.'),
  '.SH SIGNALS',
  ...tagged(['SIGTERM', 'SIGINT'], 'Ends within 10 seconds. The rules stay, so that the next start finds them.'),
  ...tagged(
    ['SIGHUP'],
    'Starts the program as it is on disk by now, with the same arguments, and hands every connection and flow over to it. ' +
      'If that fails, this process goes on.',
  ),
  '.SH FILES',
  ...tagged(
    ['/etc/default/kube-userspace-proxy'],
    'The flags of the systemd service. They count from its next restart on.',
  ),
  ...tagged([DEFAULT_CONTROL_SOCKET], 'Where the commands reach the running proxy; for root only.'),
  ...tagged(['/run/xtables.lock'], 'The lock that all share who run iptables.'),
  '.SH EXAMPLES',
  ...tagged(
    [`${NAME} --manifests /etc/services`],
    'Serves the Services in the files of a directory, and follows them.',
  ),
  ...tagged(
    ['systemctl reload kube-userspace-proxy'],
    'Takes over from the running program without losing a connection.',
  ),
  ...tagged([`${NAME} --cleanup`], 'Removes every rule, once nothing runs that would bring it back.'),
  '.SH SEE ALSO',
  `.BR iptables (8),\n.BR systemctl (1)`,
];

function synopsis(words: readonly string[], rest: string): string[] {
  return [`.B ${escaped(words.join(' '))}`, ...(rest === '' ? [] : [escaped(rest)]), '.br'];
}

function argumentsOf({ argument, options }: Command): string {
  return [argument, Object.keys(options).length > 0 ? '[options]' : undefined].filter(Boolean).join(' ');
}

function commandSection(command: Command): string[] {
  const { name, summary, options, examples = [] } = command;
  return [
    `.SS ${escaped([name, argumentsOf(command)].filter(Boolean).join(' '))}`,
    ...paragraph(`${summary[0]?.toUpperCase()}${summary.slice(1)}.`),
    ...Object.entries(options).flatMap(optionParagraph),
    ...examples.flatMap(([example, what]) => tagged([`${NAME} ${example}`], what)),
  ];
}

const HELP: Options = { alias: 'h', type: 'boolean', describe: 'show this in short' };

function groupSections(): string[] {
  const flags = Object.entries(FLAG_OPTIONS).filter(([, { hidden }]) => !hidden);
  const groups = Map.groupBy(flags, ([, { group = '' }]) => group);
  return [...groups].flatMap(([title, options]) => groupSection(title.replace(/:$/, ''), Object.fromEntries(options)));
}

function groupSection(title: string, options: OptionTable): string[] {
  return [`.SS ${escaped(title)}`, ...Object.entries(options).flatMap(optionParagraph)];
}

function accepted(): string[] {
  return Object.keys(ACCEPTED_FLAGS).map((name) => `--${name}`);
}

function optionParagraph([name, option]: readonly [name: string, option: Options]): string[] {
  const { alias = [], describe, nargs, choices, defaultDescription } = option;
  const shown = nargs === 1 ? (choices?.join('|') ?? 'VALUE') : undefined;
  const tag = [name, alias].flat().map((each) => {
    const [dashes, separator] = each.length === 1 ? ['-', ' '] : ['--', '='];
    return `\\fB${escaped(dashes + each)}\\fR${shown === undefined ? '' : `${separator}\\fI${escaped(shown)}\\fR`}`;
  });
  const fallback = shown === undefined ? undefined : (defaultDescription ?? option.default);
  return [
    '.TP',
    tag.join(', '),
    escaped(fallback === undefined ? `${describe}` : `${describe} (default: ${fallback})`),
  ];
}

function tagged(tags: readonly string[], text: string): string[] {
  return ['.TP', tags.map((tag) => `\\fB${escaped(tag)}\\fR`).join(', '), escaped(text)];
}

function paragraph(text: string): string[] {
  return ['.PP', escaped(text)];
}

/** So that nothing is taken for a request, and a dash can be copied as one. */
function escaped(text: string): string {
  return text.replaceAll('\\', '\\e').replaceAll('-', '\\-').replace(/^[.']/, '\\&$&');
}
