import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { load } from 'js-yaml';

export const ALERTS_FILE = fileURLToPath(new URL('../../deploy/prometheus/alerts.yaml', import.meta.url));
export const CONFIGURATION_FILE = fileURLToPath(new URL('../../deploy/prometheus/prometheus.yaml', import.meta.url));

/** The job name that `deploy/prometheus` gives the proxies. */
export const JOB = 'kube-userspace-proxy';

/** One alerting rule, as Prometheus reads it. */
export interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** The rules of `deploy/prometheus/alerts.yaml`. */
export function deployedAlerts(): readonly Alert[] {
  const { groups } = load(readFileSync(ALERTS_FILE, 'utf8')) as { groups: readonly { rules: readonly Alert[] }[] };
  return groups.flatMap(({ rules }) => rules);
}

/** The configuration that is shown to operators, with these targets in place of a cluster's nodes. */
export function configurationFor(targets: readonly string[], { interval }: { readonly interval: string }): object {
  const shown = load(readFileSync(CONFIGURATION_FILE, 'utf8')) as {
    scrape_configs: readonly Record<string, unknown>[];
  };
  const [scrape = {}] = shown.scrape_configs;
  const { kubernetes_sd_configs: nodes, relabel_configs: _relabelling, ...kept } = scrape;
  if (nodes === undefined) throw new Error(`${CONFIGURATION_FILE} does not look for nodes`);
  return {
    ...shown,
    global: { evaluation_interval: interval },
    rule_files: [ALERTS_FILE],
    scrape_configs: [
      { ...kept, scrape_interval: interval, scrape_timeout: interval, static_configs: [{ targets: [...targets] }] },
    ],
  };
}

const METRICS = readFileSync(new URL('../../docs/metrics.md', import.meta.url), 'utf8');

/** The metrics of this program that a query reads and `docs/metrics.md` does not list. */
export function undocumentedIn(query: string): string[] {
  const names = query.match(/\b(?:kubeproxy|userspace_proxy|process|nodejs|rest_client)_\w+(?=\{)/g) ?? [];
  return names.filter((name) => !METRICS.includes(`| \`${name.replace(/_(?:bucket|sum|count)$/, '')}\` |`));
}
