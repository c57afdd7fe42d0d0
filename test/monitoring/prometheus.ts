import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { dump } from 'js-yaml';
import type { Agent } from '../netns/agent.ts';
import type { Namespace } from '../netns/topology.ts';
import { waitFor } from '../netns/wait.ts';

const URL_BASE = 'http://127.0.0.1:9090';

export interface Series {
  readonly labels: Readonly<Record<string, string>>;
  readonly values: readonly number[];
}

export interface RuleState {
  readonly name: string;
  readonly health: string;
  readonly lastError?: string;
  readonly alerts: readonly {
    readonly labels: Readonly<Record<string, string>>;
    readonly annotations: Readonly<Record<string, string>>;
  }[];
}

/** A real Prometheus in a namespace, asked through its HTTP API as Grafana asks it. It ends with the namespace. */
export class Prometheus {
  readonly #agent: Agent;

  private constructor(agent: Agent) {
    this.#agent = agent;
  }

  /** `agent` must live in `namespace`; `directory` is for the configuration and the data. */
  static async start(
    namespace: Namespace,
    { agent, directory, configuration }: { agent: Agent; directory: string; configuration: object },
  ): Promise<Prometheus> {
    mkdirSync(directory);
    const file = join(directory, 'prometheus.yaml');
    writeFileSync(file, dump(configuration));
    const child = namespace.spawn([
      'prometheus',
      `--config.file=${file}`,
      `--storage.tsdb.path=${join(directory, 'data')}`,
      '--web.listen-address=127.0.0.1:9090',
    ]);
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => (said += text));
    const prometheus = new Prometheus(agent);
    await waitFor('Prometheus is ready', async () => {
      if (child.exitCode !== null) throw new Error(`Prometheus has ended: ${said}`);
      const answer = await agent.call('httpGet', { url: `${URL_BASE}/-/ready` }).catch(() => undefined);
      return answer?.status === 200;
    });
    return prometheus;
  }

  /** One value for each series, now. */
  async instant(query: string): Promise<readonly Series[]> {
    const { result } = await this.#get<{ result: readonly { metric: Series['labels']; value: Sample }[] }>('query', {
      query,
    });
    return result.map(({ metric, value }) => ({ labels: metric, values: [Number(value[1])] }));
  }

  /** A value for each second of the last `seconds`. */
  async range(query: string, seconds: number): Promise<readonly Series[]> {
    const end = Math.floor(Date.now() / 1_000);
    const window = { start: String(end - seconds), end: String(end), step: '1' };
    const { result } = await this.#get<{ result: readonly { metric: Series['labels']; values: Sample[] }[] }>(
      'query_range',
      { query, ...window },
    );
    return result.map(({ metric, values }) => ({ labels: metric, values: values.map(([, value]) => Number(value)) }));
  }

  /** What Grafana's `label_values(selector, label)` gives. */
  labelValues(selector: string, label: string): Promise<readonly string[]> {
    return this.#get(`label/${label}/values`, { 'match[]': selector });
  }

  async rules(): Promise<readonly RuleState[]> {
    const { groups } = await this.#get<{ groups: readonly { rules: readonly RuleState[] }[] }>('rules', {});
    return groups.flatMap(({ rules }) => rules);
  }

  async #get<T>(path: string, parameters: Readonly<Record<string, string>>): Promise<T> {
    const url = `${URL_BASE}/api/v1/${path}?${new URLSearchParams(parameters)}`;
    const { body } = await this.#agent.call('httpGet', { url });
    const { status, data, error } = JSON.parse(body);
    if (status !== 'success') throw new Error(`${error}: ${parameters['query'] ?? path}`);
    return data as T;
  }
}

/** When, and the value as text. */
type Sample = readonly [number, string];
