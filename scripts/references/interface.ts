import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { COMMANDS } from '../../src/app/subcommands.ts';
import { SETTINGS } from '../../src/config/flags.ts';
import { decodeObject, type Kind } from '../../src/kubernetes/objects/kubernetes-object.ts';
import { COUNTERS } from '../../src/model/data-plane.ts';
import { COMMAND_NAMES, type CommandName, pathOf, ROUTES } from '../../src/operate/control/protocol.ts';
import { declarationsIn, keysOf } from './json-keys.ts';
import { describeMetrics } from './metrics.ts';

const ROOT = resolve(import.meta.dirname, '../..');

/** What the answer of each route consists of, by the name of its type. */
const ANSWERS: Readonly<Partial<Record<CommandName, string>>> = {
  node: 'NodeView',
  services: 'ServiceView',
  connections: 'ConnectionView',
  tail: 'LogLine',
  explain: 'Explanation',
  endpoint: 'EndpointUsers',
};

const TYPES = [
  ...['view', 'service', 'service-port', 'endpoint', 'data-plane', 'source', 'connection-log', 'finding'].map(
    (name) => `model/${name}`,
  ),
  'util/found',
  'cli/status',
  'operate/control/endpoint-users',
  'operate/connection-log/line',
];

/** Every name that users depend on, a line each, sorted (docs/compatibility.md). */
export function interfaceNames(): string[] {
  const names = [...flags(), ...annotations(), ...metrics(), ...routes(), ...jsonKeys()];
  return [...new Set(names)].toSorted();
}

/** What both have. A name that has gone stays until somebody takes it out by hand, and says so in CHANGELOG.md. */
export function withNames(text: string, names: readonly string[]): string {
  const promised = text.split('\n').filter((line) => line !== '');
  return `${[...new Set([...promised, ...names])].toSorted().join('\n')}\n`;
}

function flags(): string[] {
  const settings = Object.entries(SETTINGS);
  const dashed = (name: string) => (name.length === 1 ? `-${name}` : `--${name}`);
  return [
    ...settings.flatMap(([name, { field }]) => (field === name ? [] : `flag ${dashed(name)}`)),
    ...settings.flatMap(([, { field }]) => (field === undefined ? [] : `configuration field ${field}`)),
    ...COMMANDS.flatMap(({ name, options }) => [
      `subcommand ${name}`,
      ...Object.keys(options).map((option) => `subcommand ${name} ${dashed(option)}`),
    ]),
  ];
}

/** All that the decoders look for, by objects that note it. */
function annotations(): string[] {
  const names: string[] = [];
  const noting = (kind: string) =>
    new Proxy<Record<string, unknown>>(
      {},
      {
        get: () => undefined,
        getOwnPropertyDescriptor: (_, name) => {
          if (String(name).includes('/')) names.push(`annotation ${kind} ${String(name)}`);
          return undefined;
        },
      },
    );
  const labels = { 'kubernetes.io/service-name': 'a' };
  const metadata = (kind: string) => ({ name: 'a', namespace: 'a', labels, annotations: noting(kind) });
  const ports = [
    { name: 't', port: 1, protocol: 'TCP' },
    { name: 'u', port: 1, protocol: 'UDP' },
  ];
  const objects: Readonly<Partial<Record<Kind, object>>> = {
    Service: { spec: { clusterIP: '192.0.2.1', ports } },
    EndpointSlice: { addressType: 'IPv4', endpoints: [], ports },
    Endpoints: { subsets: [] },
  };
  for (const [kind, object] of Object.entries(objects)) {
    decodeObject({ ...object, metadata: metadata(kind) }, kind as Kind);
  }
  return names;
}

function metrics(): string[] {
  return Object.values(describeMetrics())
    .flat()
    .flatMap(({ name, labels }) => [`metric ${name}`, ...labels.map((label) => `metric ${name}{${label}}`)]);
}

function routes(): string[] {
  const paths = [...source('src/http/routes.ts').matchAll(/'(\/(?!debug)[\w./]+)'/g)].map(([, path]) => `GET ${path}`);
  const commands = COMMAND_NAMES.flatMap((command) => {
    const { method, parameters } = ROUTES[command];
    const request = `${method} ${pathOf(command)}`;
    return [request, ...Object.keys(parameters).map((name) => `${request} parameter ${name}`)];
  });
  return [...paths, ...commands];
}

function jsonKeys(): string[] {
  const declarations = declarationsIn(TYPES.map((name) => source(`src/${name}.ts`)));
  const answers = Object.entries(ANSWERS).flatMap(([command, type]) =>
    keysOf(declarations.get(type) ?? '', declarations).map((key) => `json /v1/${command} ${key}`),
  );
  const status = keysOf(declarations.get('StatusDocument') ?? '', declarations).map((key) => `json status ${key}`);
  return [...answers, ...status, ...COUNTERS.map((counter) => `json counters ${counter}`)];
}

function source(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8');
}
