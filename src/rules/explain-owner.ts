import type { ServicePortName } from '../model/service.ts';
import { isOurs } from './chains.ts';
import { parseRule } from './explain-match.ts';
import type { TracedRule } from './explain-path.ts';
import type { ServedSet } from './rule.ts';

/** Whom a rule of this program is for. */
export interface RuleOwner extends ServedSet {
  /** It closes a local port to whoever asks for the port itself. */
  readonly isClosing: boolean;
}

const NAME = /^"([^\s/"]+\/[^\s/"]+)( local)?( proxy port)?"$/;

/** What the comment of a rule says, if the rule stands where only this program writes. */
export function ruleOwner({ table, chain, rule }: TracedRule): RuleOwner | undefined {
  if (!isOurs(table, chain)) return undefined;
  const comment = parseRule(rule).matches.find(({ option }) => option === '--comment')?.values[0] ?? '';
  const [, name, local, closing] = NAME.exec(comment) ?? [];
  if (name === undefined) return undefined;
  return {
    name: name as ServicePortName,
    set: local === undefined ? 'own' : 'local',
    isClosing: closing !== undefined,
  };
}
