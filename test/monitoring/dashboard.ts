import { readFileSync } from 'node:fs';

export interface Target {
  readonly refId: string;
  readonly expr: string;
  readonly legendFormat?: string;
  readonly datasource: DataSource;
  readonly instant?: boolean;
}

export interface DataSource {
  readonly type: string;
  readonly uid: string;
}

export interface Panel {
  readonly id: number;
  readonly title: string;
  readonly datasource?: DataSource;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  /** Of rows: none. */
  readonly targets?: readonly Target[];
}

export interface Variable {
  readonly name: string;
  readonly type: string;
  readonly datasource?: DataSource;
  readonly definition?: string;
  readonly query: string | { readonly query: string };
  readonly multi?: boolean;
  readonly includeAll?: boolean;
  readonly allValue?: string;
}

export interface Dashboard {
  readonly panels: readonly Panel[];
  readonly templating: { readonly list: readonly Variable[] };
  readonly annotations: {
    readonly list: readonly { readonly name: string; readonly target?: { readonly expr: string } }[];
  };
}

export function deployedDashboard(): Dashboard {
  const file = new URL('../../deploy/grafana/kube-userspace-proxy.json', import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')) as Dashboard;
}

/** What an operator has chosen: one value, several of them, or all. */
export type Choice = string | readonly string[] | 'all';

/** A query as Grafana's Prometheus data source would send it. Throws for a variable that is not known. */
export function interpolate(
  query: string,
  {
    dashboard,
    choices,
    builtIn,
  }: {
    readonly dashboard: Dashboard;
    readonly choices: ReadonlyMap<string, Choice>;
    /** Such as `__rate_interval`. */
    readonly builtIn: Readonly<Record<string, string>>;
  },
): string {
  return query.replace(/\$(?:\{(\w+)\}|(\w+))/g, (_, braced?: string, plain?: string) => {
    const name = braced ?? plain ?? '';
    const variable = dashboard.templating.list.find((one) => one.name === name);
    const choice = choices.get(name);
    if (builtIn[name] !== undefined) return builtIn[name];
    if (variable === undefined || choice === undefined) throw new Error(`no value for $${name} in ${query}`);
    return grafanaText(variable, choice);
  });
}

/**
 * `PrometheusDatasource.interpolateQueryExpr` of Grafana: a regular expression only where there may be several values.
 */
function grafanaText({ name, allValue, multi = false, includeAll = false }: Variable, choice: Choice): string {
  if (choice === 'all') {
    if (allValue === undefined) throw new Error(`$${name} has no value for all`);
    return allValue;
  }
  if (!multi && !includeAll) return String(choice).replaceAll("'", "\\\\'");
  const values = [choice].flat().map(escapedForRegExp);
  return values.length === 1 ? (values[0] ?? '') : `(${values.join('|')})`;
}

/** Twice: once for the regular expression, once for the text in PromQL that holds it. */
function escapedForRegExp(value: string): string {
  return value.replaceAll('\\', '\\\\\\\\').replace(/[$^*{}[\]'+?.()|]/g, '\\\\$&');
}
