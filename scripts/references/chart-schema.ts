import { SETTINGS } from '../../src/config/flags.ts';
import type { Setting } from '../../src/config/setting.ts';
import { SCHEDULERS } from '../../src/model/scheduler.ts';
import { formatDuration } from '../../src/util/duration.ts';
import type { ChartValue } from './chart.ts';

type Type = 'array' | 'boolean' | 'integer' | 'number' | 'object' | 'string';

/** What there is of JSON Schema here. */
export interface Schema {
  readonly type?: Type | readonly (Type | 'null')[];
  readonly enum?: readonly (string | null)[];
  readonly pattern?: string;
  readonly not?: Schema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean | Schema;
}

/** Fields of the program's configuration file: their types are the program's own. */
const CONFIGURATION = 'config';

/*
 * The program itself says more exactly what is wrong, but to the log of a Pod that does not start. So what can be told
 * by its form alone is told before anything is installed. No form refuses what the program or Kubernetes would take.
 */

const anyOf = (...patterns: readonly string[]) => `(${patterns.join('|')})`;
const OBJECT: Schema = { type: 'object' };
const STRINGS: Schema = { type: 'object', additionalProperties: { type: 'string' } };

function oneOf(...choices: readonly string[]): Schema {
  return { type: 'string', enum: choices };
}

function form(pattern: string): Schema {
  return { type: 'string', pattern: `^${pattern}$` };
}

/** Empty stands for the default, or for none. */
function optional(pattern: string): Schema {
  return form(anyOf('', pattern));
}

function list(items: Schema): Schema {
  return { type: 'array', items };
}

// Short enough to be read in Helm's message; the program knows which addresses there are.
const IPV4 = '[0-9]{1,3}(\\.[0-9]{1,3}){3}';
const IPV6 = '[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:.]*';
const CIDR = `(${IPV4}|${IPV6})/[0-9]{1,3}`;
/** Not 0: the kubelet, which asks there, would not know which one the kernel has chosen. */
const PORT = '[1-9][0-9]{0,4}';
const LISTEN_ADDRESS = anyOf(`${IPV4}(:${PORT})?`, IPV6, `\\[${IPV6}\\]:${PORT}`);
const INTERFACE = '[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}';
const DURATION = '(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)';
const ABSOLUTE_PATH = '/.*';
/** RFC 1123, as Kubernetes names most objects. */
const NAME = '[a-z0-9]([a-z0-9-]*[a-z0-9])?(\\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*';
/** Those of distribution/reference, without a tag or digest. */
const REPOSITORY_PART = '[a-z0-9]+([._-]+[a-z0-9]+)*';
const REPOSITORY = `(([A-Za-z0-9.-]+|\\[[0-9a-fA-F:]+\\])(:[0-9]+)?/)?${REPOSITORY_PART}(/${REPOSITORY_PART})*`;
/** Of nodes, as Kubernetes has them. */
const COUNT_OR_SHARE: Schema = { type: ['integer', 'string'], minimum: 0, pattern: '^[0-9]+%$' };
/** That of the Prometheus operator's definitions. */
const SCRAPE_INTERVAL = '(0|([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)';

/** Of the chart's own values, where the type of the default does not say enough. */
const VALUES: Readonly<Record<string, Schema>> = {
  'image.repository': optional(REPOSITORY),
  'image.tag': optional('[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}'),
  'image.digest': optional('sha256:[0-9a-f]{64}'),
  'image.pullPolicy': oneOf('Always', 'IfNotPresent', 'Never'),
  imagePullSecrets: list({
    type: 'object',
    properties: { name: form(NAME) },
    required: ['name'],
    additionalProperties: false,
  }),
  'apiServer.url': optional('https?://[^/?#@]+(/[^?#]*)?'),
  'kubeProxy.configMap': optional(NAME),
  // The chart says these itself: probes ask where the field says, and each node has a name of its own.
  extraArgs: list({
    type: 'string',
    not: form(
      '--(config|cri-endpoint|hand-over-socket|healthz-bind-address|healthz-port|hostname-override|master|state-dir)(=.*)?',
    ),
  }),
  nodeSelector: STRINGS,
  tolerations: list(OBJECT),
  priorityClassName: optional(NAME),
  updateStrategy: {
    type: 'object',
    properties: {
      type: oneOf('RollingUpdate', 'OnDelete'),
      rollingUpdate: { type: 'object', properties: { maxSurge: COUNT_OR_SHARE, maxUnavailable: COUNT_OR_SHARE } },
    },
  },
  podLabels: STRINGS,
  podAnnotations: STRINGS,
  'state.hostPath': optional(ABSOLUTE_PATH),
  // In a folder that can be mounted.
  'containerRuntime.socket': optional('/[^/]+/.*[^/]'),
  'controlSocket.hostPath': optional(ABSOLUTE_PATH),
  'serviceAccount.name': optional(NAME),
  'serviceAccount.annotations': STRINGS,
  'podMonitor.labels': STRINGS,
  'podMonitor.interval': form(SCRAPE_INTERVAL),
  'prometheusRule.labels': STRINGS,
  'dashboard.labels': STRINGS,
};

/** Of the fields whose settings do not tell their form. */
const FIELDS: Readonly<Record<string, Schema>> = {
  mode: oneOf('', 'userspace'),
  bindAddress: optional(anyOf(IPV4, IPV6)),
  portRange: optional('[0-9]{1,5}([-+][0-9]{1,5})?'),
  nodePortAddresses: list(form(anyOf('primary', 'localhost', 'all', CIDR))),
  clusterCIDR: optional(`${CIDR}(,${CIDR})*`),
  healthzBindAddress: optional(LISTEN_ADDRESS),
  metricsBindAddress: optional(LISTEN_ADDRESS),
  'detectLocal.bridgeInterface': optional(INTERFACE),
  'detectLocal.interfaceNamePrefix': optional(INTERFACE),
  'clientConnection.kubeconfig': optional(ABSOLUTE_PATH),
  'clientConnection.qps': { type: 'number', minimum: 0 },
  'ipvs.scheduler': oneOf('', ...SCHEDULERS),
  'ipvs.excludeCIDRs': list(form(CIDR)),
  // These may also be numbers, which a pattern is not about.
  'logging.flushFrequency': { pattern: `^${DURATION}$` },
  'logging.options.text.infoBufferSize': {},
  'logging.options.json.infoBufferSize': {},
  'logging.vmodule': list({
    type: 'object',
    properties: { filePattern: { type: 'string' }, verbosity: { type: 'integer', minimum: 0 } },
    required: ['filePattern', 'verbosity'],
    additionalProperties: false,
  }),
  featureGates: { type: 'object', additionalProperties: { type: 'boolean' } },
  // The chart gives each node its own name.
  hostnameOverride: oneOf(''),
  serviceProxyName: oneOf(''),
};

/**
 * A JSON schema that knows no other values than these, so that Helm names a typing error. What Kubernetes knows may
 * hold anything that it would take: the API server looks into it.
 */
export function valuesSchema(values: readonly ChartValue[]): Schema & { readonly $schema: string } {
  const known = values.map(({ path, fallback }) => {
    const name = path.join('.');
    return { path, schema: name === CONFIGURATION ? configurationSchema() : (VALUES[name] ?? schemaOf(fallback)) };
  });
  // Helm puts "global" into the values of every chart that is a part of another one.
  const all = [...known, { path: ['global'], schema: OBJECT }];
  return { $schema: 'http://json-schema.org/draft-07/schema#', ...treeOf(all) };
}

/** Of the fields that a configuration file may have. */
function configurationSchema(): Schema {
  return treeOf(
    Object.values(SETTINGS).flatMap((setting) => {
      const { field } = setting;
      if (field === undefined) return [];
      return { path: field.split('.'), schema: orNull(FIELDS[field] ?? fieldSchema(setting)) };
    }),
  );
}

/** Null stands for the default of each field, and files of kubeadm are full of it. */
function orNull({ type, enum: choices, ...rest }: Schema): Schema {
  return {
    ...rest,
    ...(type !== undefined && { type: [type as Type, 'null'] }),
    ...(choices !== undefined && { enum: [...choices, null] }),
  };
}

function fieldSchema({ choices, range, parse, show, fallback }: Setting<unknown>): Schema {
  // Zero stands for the default of most.
  if (choices !== undefined) return oneOf(...new Set(['', ...choices]));
  if (range !== undefined) return { type: 'integer', minimum: Math.min(0, range[0]), maximum: range[1] };
  if (show === formatDuration) return form(DURATION);
  const shown = show(parse(fallback));
  // The program leaves out what older kube-proxies do not know.
  return shown === undefined ? {} : schemaOf(shown);
}

function schemaOf(value: unknown): Schema {
  return { type: typeof value as Type };
}

/** Leaves in objects that have nothing else. */
function treeOf(leaves: readonly { readonly path: readonly string[]; readonly schema: Schema }[]): Schema {
  const properties: Record<string, Schema> = {};
  for (const [key, below] of Map.groupBy(leaves, ({ path: [key = ''] }) => key)) {
    const [first] = below;
    if (first?.path.length === 1) properties[key] = first.schema;
    else properties[key] = treeOf(below.map(({ path, schema }) => ({ path: path.slice(1), schema })));
  }
  return { type: 'object', properties, additionalProperties: false };
}
