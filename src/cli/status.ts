import { type NodeView, SEVERITY, type ServiceState, servingStateOf } from '../model/view.ts';
import { counted } from '../util/text.ts';
import { command } from './command.ts';
import { oneColumnEach, printableJson, shortDuration } from './format.ts';
import { askOne, CONTROL_SOCKET, caveatsOf, JSON_OUTPUT, servicesOf } from './shared.ts';

/** Its name, where there are several. */
function usedOf({ servers }: NonNullable<NodeView['api']>): string {
  const used = servers.length > 1 ? servers.find(({ usedSince }) => usedSince !== undefined) : undefined;
  return used === undefined ? '' : `${used.server} `;
}

type Counts = Readonly<Record<ServiceState, number>>;

export const STATUS = command({
  name: 'status',
  summary: 'say in one line how the proxy is: Services by state, the age of the rules, the API server',
  options: { ...JSON_OUTPUT, ...CONTROL_SOCKET },
  examples: [['status || list --problems -o wide', 'for scripts: exits with 1 if the proxy, or a Service, is down']],
  /** 0 while rules are in sync, the API server answers, and each Service that has endpoints has one that answers. */
  run: async ({ output, 'control-socket': socket }, terminal, { connect }) => {
    const control = connect(socket);
    const node = await askOne(control, 'node', {});
    const counts = { ok: 0, degraded: 0, down: 0, empty: 0, pending: 0 };
    for await (const { state } of servicesOf(control, { summary: true })) counts[state] += 1;
    const isWell = node.healthy && caveatsOf(node).length === 0 && counts.down === 0;
    const { healthy, capture, families, api, now } = node;
    const document = { ok: isWell, healthy, servicePorts: counts, capture, families, api };
    terminal.out(output === 'json' ? printableJson(document) : `${oneColumnEach(statusLine(node, counts, now))}\n`);
    return isWell ? 0 : 1;
  },
});

/** "2,005 Service ports: 2 down, 2,003 ok; rules of IPv4 in sync for 4s; API server connected". */
function statusLine(node: NodeView, counts: Counts, now: number): string {
  const states = (Object.keys(SEVERITY) as ServiceState[]).sort((a, b) => SEVERITY[b] - SEVERITY[a]);
  const shown = states.flatMap((state) => (counts[state] > 0 ? `${counts[state]} ${state}` : []));
  const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const rules = node.families.map(({ family, lastSync, lastSyncedAt, pending }) => {
    const waiting = pending === 0 ? '' : `, ${counted(pending, 'Service')} waiting`;
    const since = lastSyncedAt === undefined ? 'never synced' : `synced ${shortDuration(now - lastSyncedAt)} ago`;
    return `rules of ${family} ${since}${lastSync?.err === undefined ? '' : `, now failing: ${lastSync.err}`}${waiting}`;
  });
  const { api } = node;
  const source = api === undefined ? 'Services from files' : apiText(api);
  const services = `${counted(all, 'Service port')}${shown.length === 0 ? '' : `: ${shown.join(', ')}`}`;
  return [...(node.healthy ? [] : ['unhealthy']), services, ...rules, source].join('; ');
}

function apiText(api: NonNullable<NodeView['api']>): string {
  const { connected, staleForMs, servedStateOf } = api;
  const server = connected ? `API server ${usedOf(api)}connected` : `API server lost for ${shortDuration(staleForMs)}`;
  return servedStateOf === undefined ? server : `${server}, ${servingStateOf(servedStateOf)}`;
}
