import { API_VERSION, KIND } from './configuration-file.ts';
import { SETTING_NAMES, SETTINGS, type SettingValues } from './settings.ts';
import { yaml } from './yaml.ts';

/** What every field of a KubeProxyConfiguration comes to, by its path. */
export type EffectiveFields = ReadonlyMap<string, unknown>;

export function effectiveFields(values: SettingValues): EffectiveFields {
  const fields = new Map<string, unknown>();
  for (const name of SETTING_NAMES) {
    const { field } = SETTINGS[name];
    const shown = field?.type.show(values[name]);
    if (field !== undefined && shown !== undefined) fields.set(field.path, shown);
  }
  return fields;
}

/** A file for `--config`: YAML, its keys sorted as upstream's encoder sorts them. */
export function configurationFile(fields: EffectiveFields): string {
  return yaml({ apiVersion: API_VERSION, kind: KIND, ...nested(fields, (segments) => segments) });
}

/**
 * What `/configz` shows below `kubeproxy.config.k8s.io`: the fields under the names that they have in kube-proxy's own
 * code, in the shape of 1.20 (later ones have no `PortRange` and `UDPIdleTimeout`, which matter here).
 */
export function effectiveConfiguration({ fields }: { readonly fields: EffectiveFields }): object {
  return nested(fields, goNames);
}

type Nested = { [key: string]: unknown };

function nested(fields: EffectiveFields, rename: (segments: readonly string[]) => readonly string[]): Nested {
  const root: Nested = {};
  for (const [path, value] of fields) {
    const segments = rename(path.split('.'));
    let node = root;
    for (const segment of segments.slice(0, -1)) {
      node[segment] ??= {};
      node = node[segment] as Nested;
    }
    node[segments.at(-1) ?? ''] = value;
  }
  return root;
}

const GO_PREFIXES: ReadonlyMap<string, string> = new Map([
  ['iptables', 'IPTables'],
  ['ipvs', 'IPVS'],
  ['nftables', 'NFTables'],
  ['oom', 'OOM'],
  ['qps', 'QPS'],
  ['tcp', 'TCP'],
  ['udp', 'UDP'],
]);

function goNames(segments: readonly string[]): readonly string[] {
  const [first = ''] = segments;
  // Only the logging types carry names for JSON.
  return first === 'logging' ? [goName(first), ...segments.slice(1)] : segments.map(goName);
}

function goName(segment: string): string {
  const [prefix = ''] = /^[a-z]+/.exec(segment) ?? [];
  const known = GO_PREFIXES.get(prefix);
  return known === undefined
    ? segment.charAt(0).toUpperCase() + segment.slice(1)
    : known + segment.slice(prefix.length);
}
