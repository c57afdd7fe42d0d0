import { parseAddress } from '../src/model/address.ts';
import { namedEndpoint } from '../src/model/endpoint.ts';
import { SCHEDULERS, type SchedulerName } from '../src/model/scheduler.ts';
import { AffinityMemory } from '../src/services/affinity-memory.ts';
import { Member } from '../src/services/member.ts';
import { Picker } from '../src/services/picker.ts';
import { MaglevTables } from '../src/services/schedulers/maglev-tables.ts';

/**
 * `scripts/bench pick [ENDPOINTS]`: what a scheduler costs for one connection: the pick, the notice that the connection
 * is open, and the notice that an earlier one has ended. The best and the median of several rounds.
 */
const PICKS = 100_000;
const ROUNDS = 7;
const OPEN = 5000;

function pickerFor(scheduler: SchedulerName, count: number): Picker {
  const picker = new Picker({
    create: (endpoint) => new Member(endpoint),
    random: Math.random,
    affinity: { maxClients: 0, memory: new AffinityMemory(0), namespace: 'bench' },
    maglevTables: new MaglevTables(),
  });
  const endpoints = Array.from({ length: count }, (_, index) => {
    const address = parseAddress(`10.1.${index >> 8}.${index & 255}`);
    if (address === undefined) throw new RangeError(`there is no address for endpoint ${index}`);
    return { ...namedEndpoint(address, 80), weight: 1 + (index % 3) };
  });
  picker.update({ endpoints, affinity: { type: 'None' }, scheduler }, 0);
  return picker;
}

/** Nanoseconds for one connection. */
function round(picker: Picker, clients: readonly string[], open: Member[]): number {
  const begun = performance.now();
  for (let index = 0; index < PICKS; index++) {
    const member = picker.pick(clients[index % clients.length] as string, index).next();
    if (member === undefined) throw new Error('a picker with endpoints gives one');
    member.taken();
    open[index % OPEN]?.released();
    open[index % OPEN] = member;
  }
  return ((performance.now() - begun) * 1e6) / PICKS;
}

const count = Number(process.argv[2] ?? 1000);
const clients = Array.from({ length: 4096 }, (_, index) => `10.244.${index >> 8}.${index & 255}`);
console.log(`${count} endpoints, nanoseconds for a connection:`);
for (const scheduler of SCHEDULERS) {
  const picker = pickerFor(scheduler, count);
  const open: Member[] = [];
  const times = Array.from({ length: ROUNDS }, () => round(picker, clients, open)).toSorted((a, b) => a - b);
  console.log(`${scheduler.padEnd(8)}best ${times[0]?.toFixed(0)}, median ${times[ROUNDS >> 1]?.toFixed(0)}`);
}
