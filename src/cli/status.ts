import { findingText } from '../model/finding.ts';
import { serversText } from '../model/source.ts';
import { type NodeView, noStates, SERVICE_STATES, type StateCounts, servingStateOf } from '../model/view.ts';
import { counted, listed } from '../util/text.ts';
import { command } from './command.ts';
import { oneColumnEach, printableJson, shortDuration } from './format.ts';
import { askOne, CONTROL_SOCKET, caveatsOf, JSON_OUTPUT, servicesOf } from './shared.ts';

/** Of one line; `list --problems` has all. */
const SHOWN_FINDINGS = 1;
const SHOWN_SERVERS = 3;

/** `-o json`. */
export interface StatusDocument extends Pick<NodeView, 'healthy' | 'capture' | 'families' | 'api' | 'findings'> {
  readonly ok: boolean;
  readonly servicePorts: Readonly<StateCounts>;
  readonly waiting: number;
}

export const STATUS = command({
  name: 'status',
  summary: 'say in one line how the proxy is: Services by state, the age of the rules, the API server',
  options: { ...JSON_OUTPUT, ...CONTROL_SOCKET },
  examples: [['status || list --problems -o wide', 'for scripts: exits with 1 if the proxy, or a Service, is down']],
  /** 0 while rules are in sync, the API server answers, and each Service that has endpoints has one that answers. */
  run: async ({ output, 'control-socket': socket }, terminal, { connect }) => {
    const control = connect(socket);
    const node = await askOne(control, 'node', {});
    const counts = noStates();
    let waiting = 0;
    for await (const { state, counters } of servicesOf(control, { summary: true })) {
      counts[state] += 1;
      waiting += counters.waiting;
    }
    const isWell = node.healthy && caveatsOf(node).length === 0 && counts.down === 0;
    const { healthy, capture, families, api, findings } = node;
    const document: StatusDocument = {
      ok: isWell,
      healthy,
      servicePorts: counts,
      waiting,
      capture,
      families,
      ...(api !== undefined && { api }),
      ...(findings !== undefined && { findings }),
    };
    terminal.out(output === 'json' ? printableJson(document) : `${oneColumnEach(statusLine(node, counts, waiting))}\n`);
    return isWell ? 0 : 1;
  },
});

/** "2,005 Service ports: 2 down, 2,003 ok; rules of IPv4 in sync for 4s; API server connected". */
function statusLine(node: NodeView, counts: Readonly<StateCounts>, waiting: number): string {
  const shown = SERVICE_STATES.flatMap((state) => (counts[state] > 0 ? `${counts[state]} ${state}` : []));
  const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const rules = node.families.map(({ family, lastSync, lastSyncedAt, pending }) => {
    const behind = pending === 0 ? '' : `, ${counted(pending, 'Service')} waiting`;
    const since = lastSyncedAt === undefined ? 'never synced' : `synced ${shortDuration(node.now - lastSyncedAt)} ago`;
    return `rules of ${family} ${since}${lastSync?.err === undefined ? '' : `, now failing: ${lastSync.err}`}${behind}`;
  });
  const { api } = node;
  const source = api === undefined ? 'Services from files' : apiText(api, node.now);
  const services = `${counted(all, 'Service port')}${shown.length === 0 ? '' : `: ${shown.join(', ')}`}`;
  const clients = waiting === 0 ? [] : [`${counted(waiting, 'client')} waiting for an endpoint`];
  const findings = node.findings === undefined ? [] : [listed(node.findings.map(findingText), SHOWN_FINDINGS)];
  return [...(node.healthy ? [] : ['unhealthy']), services, ...clients, ...rules, source, ...findings].join('; ');
}

/** "API server 10.0.0.1:6443 connected", "API server lost for 2m (10.0.0.1:6443: used last, failing for 2m: …)" */
function apiText(api: NonNullable<NodeView['api']>, now: number): string {
  const { connected, staleForMs, servers, servedStateOf } = api;
  const used = servers.find(({ usedSince }) => usedSince !== undefined);
  const each = listed(serversText(api, now, shortDuration), SHOWN_SERVERS);
  const server = connected
    ? `API server ${used === undefined ? '' : `${used.server} `}connected`
    : `API server lost for ${shortDuration(staleForMs)}${each === '' ? '' : ` (${each})`}`;
  return servedStateOf === undefined ? server : `${server}, ${servingStateOf(servedStateOf)}`;
}
