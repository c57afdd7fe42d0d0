import { readStatus } from '../../kubernetes/api-error.ts';
import { readPage } from '../../kubernetes/list-page.ts';
import { ObjectStore } from '../../kubernetes/object-store.ts';
import { resourceOf } from '../../kubernetes/resources.ts';
import type { Service } from '../../model/service.ts';
import type { Clock } from '../../util/clock.ts';
import { messageOf } from '../../util/text.ts';
import type { AskApi } from './api-connection.ts';
import { counted } from './counted.ts';
import { type Finding, ok, warn } from './finding.ts';
import { FindingsLog } from './findings-log.ts';

export interface ListedServices {
  /** As far as they could be had. */
  readonly services: readonly Service[];
  readonly findings: readonly Finding[];
}

const PAGE_SIZE = 500;

/** Against a server that never comes to the end. */
const MAX_PAGES = 200;

/** No page is asked for after that: a check is to have an end that one waits for. */
const MAX_MS = 5_000;

/** Of what is wrong with Services, for there may be thousands. */
const SHOWN = 5;

/** The Services of a cluster, page by page, read and judged by what reads them in a run. */
export async function listServices({
  ask,
  clock,
}: {
  readonly ask: AskApi;
  readonly clock: Clock;
}): Promise<ListedServices> {
  const resource = resourceOf('Service');
  const log = new FindingsLog('mend the Service');
  const list = new ObjectStore(resource, log).beginList();
  const dueAt = clock.now() + MAX_MS;
  let incomplete: string | undefined;
  let next = '';
  try {
    for (let pages = 0; pages === 0 || next !== ''; pages++) {
      if (pages === MAX_PAGES) throw new Error(`there are more than ${MAX_PAGES * PAGE_SIZE}`);
      if (clock.now() >= dueAt) throw new Error(`it takes longer than ${MAX_MS / 1_000} s`);
      const query = { limit: `${PAGE_SIZE}`, ...(next !== '' && { continue: next }), ...resource.selectors };
      const { status, body } = await ask(`${resource.path}?${new URLSearchParams(query)}`);
      if (status !== 200) throw new Error(readStatus(body).message ?? `HTTP ${status}`);
      const page = readPage(body);
      for (const item of page.items) list.add(item);
      next = page.next;
    }
  } catch (error) {
    incomplete = messageOf(error);
  }
  const changes = list.finish();
  const objects = changes === 'unconfirmed' ? [] : changes;
  const services = objects.flatMap(({ value }) => (value?.kind === 'Service' ? value.value : []));
  return { services, findings: [summary(services, incomplete), ...shortened(log.findings.map(asWarning))] };
}

function summary(services: readonly Service[], incomplete: string | undefined): Finding {
  const ports = services.reduce((sum, service) => sum + service.ports.length, 0);
  const found = `${counted(services.length, 'Service')} with ${counted(ports, 'port')}`;
  if (incomplete === undefined) return ok(found);
  return warn(
    `${found}, and not all of them: ${incomplete}`,
    'the checks of ports know only these; see that the API server is well',
  );
}

/** Whoever may write a Service must not be able to have it said that no Service can be served here. */
function asWarning(finding: Finding): Finding {
  return { ...finding, level: 'warn' };
}

function shortened(findings: readonly Finding[]): readonly Finding[] {
  if (findings.length <= SHOWN) return findings;
  const more = counted(findings.length - SHOWN, 'fault');
  return [
    ...findings.slice(0, SHOWN),
    warn(`${more} more in other Services`, 'mend these first; the log of the proxy names all of them'),
  ];
}
