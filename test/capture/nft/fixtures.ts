import { type Claim, claimsOf } from '../../../src/capture/claims.ts';
import { elementsOf } from '../../../src/capture/nft/claim-elements.ts';
import { elementText } from '../../../src/capture/nft/element.ts';
import type { ServicePort } from '../../../src/model/service-port.ts';
import { servicePort } from '../../support/model.ts';
import { nodeFacts } from '../fixtures.ts';

/** Of shop/web on the local ports 40001 and, for the local set, 40002, unless told otherwise. */
export function claims(fields: Partial<ServicePort> = {}, node = nodeFacts(), localPort = 40_001): readonly Claim[] {
  const local = fields.local === undefined ? {} : { localSetPort: localPort + 1 };
  return claimsOf({ servicePort: servicePort(fields), localPort, ...local }, node);
}

/** `SET KEY comment "…" : DATA` for each element of claims. */
export function elementTexts(some: readonly Claim[]): readonly string[] {
  return some.flatMap((claim) => elementsOf(claim).elements.map((each) => `${each.set} ${elementText(each)}`));
}
