import { hash } from 'node:crypto';
import type { ServedSet } from '../../model/capture.ts';
import type { ServicePortName } from '../../model/service.ts';
import type { AddressClaim, Claim, NodePortClaim, Route, Routes, Target } from '../claims.ts';
import { portOf } from '../portal.ts';
import type { Element, SetName } from './element.ts';
import { type Condition, type ConditionRule, TO_DROP, TO_LOCAL, TO_PORTAL } from './table.ts';

export interface ClaimElements {
  readonly elements: readonly Element[];
  readonly conditions: readonly Condition[];
}

const NO_CONDITIONS: readonly Condition[] = [];

/** What a claim has in the table. Nearly all have one element. */
export function elementsOf(claim: Claim): ClaimElements {
  switch (claim.kind) {
    case 'NodePort':
      return nodePortElements(claim);
    case 'health check':
      return only({ set: 'health-checks', protocol: 'TCP', port: claim.port, comment: claim.owner });
    case 'local port':
      return only({ set: 'local-ports', protocol: claim.protocol, port: claim.port, comment: commentOf(claim) });
    default:
      return addressElements(claim);
  }
}

function only(element: Element): ClaimElements {
  return { elements: [element], conditions: NO_CONDITIONS };
}

/** A Service port and its endpoint set. Names contain no blank. */
export function commentOf({ name, set }: ServedSet): string {
  return set === 'own' ? name : `${name} local`;
}

/** {@link commentOf} read again; `undefined` for a comment that is not one. */
export function servedSetOf(comment: string): ServedSet | undefined {
  const [, name, local] = /^([^\s/"]+\/[^\s/"]+)( local)?$/.exec(comment) ?? [];
  return name === undefined ? undefined : { name: name as ServicePortName, set: local === undefined ? 'own' : 'local' };
}

function addressElements({ owner, address, protocol, port, routes }: AddressClaim): ClaimElements {
  const everybodys = onlyTarget(routes);
  if (everybodys !== undefined) {
    const { comment, data } = portalOf(owner, everybodys);
    return only({ set: 'portals', address, protocol, port, comment, data });
  }
  const at = (set: SetName, comment: string, data: number | string): Element => {
    return { set, address, protocol, port, comment, data };
  };
  const { usual, local } = slotsOf([...routes.container, ...routes.host]);
  const [into, out] = [wayOf(routes.container, usual), wayOf(routes.host, usual)];
  return {
    elements: [
      at('portals', portalOf(owner, usual).comment, portOf(usual)),
      ...(local === undefined ? [] : [at('portals-local', portalOf(owner, local).comment, portOf(local))]),
      ...(into.to === TO_PORTAL ? [] : [at('conditions', owner, into.to)]),
      ...(out.to === TO_PORTAL ? [] : [at('conditions-out', owner, out.to)]),
    ],
    conditions: [...into.conditions, ...out.conditions],
  };
}

function nodePortElements({ owner, protocol, port, routes, spared, letIn }: NodePortClaim): ClaimElements {
  const everybodys = onlyTarget(routes);
  if (everybodys !== undefined && spared.length === 0) {
    const { comment, data } = portalOf(owner, everybodys);
    return only({ set: 'nodeports', protocol, port, comment, data });
  }
  const at = (set: SetName, comment: string, data: number | string): Element => {
    return { set, protocol, port, comment, data };
  };
  // The node's own processes have one target, because only load balancer IPs have source ranges.
  const { usual, local } = slotsOf([...routes.host, ...routes.container]);
  const into = wayOf(routes.container, usual);
  return {
    elements: [
      at('nodeports', portalOf(owner, usual).comment, portOf(usual)),
      ...(local === undefined ? [] : [at('nodeports-local', portalOf(owner, local).comment, portOf(local))]),
      ...(into.to === TO_PORTAL ? [] : [at('nodeport-conditions', owner, into.to)]),
      ...spared.map((address): Element => ({ set: 'spared', address, protocol, port, comment: owner })),
      ...letIn.map((address): Element => ({ set: 'let-in', address, protocol, port, comment: owner })),
    ],
    conditions: into.conditions,
  };
}

function portalOf(owner: ServicePortName, target: Target) {
  const set = target.kind === 'listener' ? target.set : 'own';
  return { comment: commentOf({ name: owner, set }), data: portOf(target) };
}

/** Of nearly all claims. `undefined` where it matters who asks. */
function onlyTarget({ container, host }: Routes): Target | undefined {
  const [one, other] = [container[0]?.target, host[0]?.target];
  if (container.length > 1 || host.length > 1 || one === undefined || other === undefined) return undefined;
  return portOf(one) === portOf(other) ? one : undefined;
}

const DROP: Target = { kind: 'drop' };

/**
 * The targets of a claim beside `drop`, of which there are at most two, as many as endpoint sets. `usual` is for those
 * who meet no condition: if the node's own processes are among them, it is theirs.
 */
function slotsOf(routes: readonly Route[]): { readonly usual: Target; readonly local: Target | undefined } {
  const targets = new Map(routes.map(({ target }) => [portOf(target), target]));
  targets.delete(portOf(DROP));
  const all = [...targets.values()];
  const usual = all.find((target) => target.kind === 'listener' && target.set === 'own') ?? all[0] ?? DROP;
  return { usual, local: all.find((target) => target !== usual) };
}

/** The chain for packets that have these routes, and what it is if it is one of its own. */
function wayOf(
  routes: readonly Route[],
  usual: Target,
): { readonly to: string; readonly conditions: readonly Condition[] } {
  const rules = routes.map(
    ({ target, source, inInterface }): ConditionRule => ({ source, inInterface, to: toOf(target, usual) }),
  );
  const last = rules.at(-1)?.to ?? TO_DROP;
  if (rules.every(({ to }) => to === last)) return { to: last, conditions: NO_CONDITIONS };
  const chain = `from-${hash('sha256', JSON.stringify(rules), 'base64url').replace(/[^\w]/g, '').slice(0, 16)}`;
  return { to: chain, conditions: [{ chain, rules }] };
}

function toOf(target: Target, usual: Target): string {
  if (portOf(target) === portOf(usual)) return TO_PORTAL;
  return target.kind === 'drop' ? TO_DROP : TO_LOCAL;
}
