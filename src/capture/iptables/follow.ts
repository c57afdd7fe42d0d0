import type { FollowedPacket, Path, Fate as PathFate } from '../../model/capture.ts';
import { endpointName } from '../../model/endpoint.ts';
import { DROP_PORT, REJECT_PORT } from '../portal.ts';
import { isOurs, JUMPS, PORTALS_CONTAINER, PORTALS_HOST, UNASSIGNED } from './chains.ts';
import { type Fate, type Kernel, ruleOwner, type Stop, type Trace, type TracedRule, trace } from './trace.ts';

/** See `Capture.follow`. Rejects with an `IptablesError`. */
export async function follow(packet: FollowedPacket, kernel: Kernel): Promise<Path> {
  const traced = await trace({ ...packet, isFromNat: false }, kernel);
  const rules = traced.rules.map(({ table, chain, rule }) => ({
    table,
    chain,
    rule,
    line: lineOf({ table, chain, rule }),
  }));
  return { rules, nat: inNat(packet, traced), stop: behindNat(traced.filter) };
}

function inNat({ isOwn }: FollowedPacket, { nat, rules }: Trace): PathFate {
  if (nat.kind === 'passes') {
    const portals = isOwn ? PORTALS_HOST : PORTALS_CONTAINER;
    const jump = JUMPS.find(({ to }) => to === portals)?.spec;
    const isLed = rules.some(({ rule }) => rule === jump);
    return { kind: 'passes', missing: isLed ? undefined : `no rule jumps to ${portals}` };
  }
  if (nat.kind !== 'sent') return { kind: 'foreign', text: stopped(nat) };
  const owner = ruleOwner(nat.by);
  const { address, port } = nat;
  if (owner === undefined && nat.by.table === 'nat' && nat.by.chain === UNASSIGNED) return { kind: 'unassigned' };
  if (owner === undefined) {
    const where = address === undefined ? `port ${port} of this node` : endpointName({ address, port });
    return { kind: 'foreign', text: `a rule of another program sends it to ${where} ${shown(nat.by)}` };
  }
  const { name } = owner;
  if (owner.isClosing) return { kind: 'closed', name };
  if (port === REJECT_PORT || port === DROP_PORT) return { kind: port === REJECT_PORT ? 'reject' : 'drop', name };
  return { kind: 'listener', name, localPort: port };
}

/** What filter does before the packet reaches a listener or one of our own rules; `undefined` for nothing. */
function behindNat(fate: Fate): string | undefined {
  if (fate.kind === 'passes' || fate.kind === 'sent') return undefined;
  return fate.kind !== 'unclear' && isOurs(fate.by.table, fate.by.chain) ? undefined : stopped(fate);
}

function stopped({ kind, by }: Stop): string {
  if (kind === 'unclear') return `a rule decides whose effect is not known ${shown(by)}`;
  const verb = kind === 'dropped' ? 'drops' : 'rejects';
  return by.rule.startsWith('-P ')
    ? `the policy of ${by.table} ${by.chain} ${verb} it`
    : `a rule ${verb} it ${shown(by)}`;
}

/** In brackets, as the end of the sentence is no part of it. */
function shown(rule: TracedRule): string {
  return `(${lineOf(rule)})`;
}

/** Arguments of iptables, as `iptables-save` has them: to be copied, and found there. */
function lineOf({ table, chain, rule }: TracedRule): string {
  return `-t ${table} -A ${chain} ${rule}`;
}
