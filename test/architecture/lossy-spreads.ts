/* Spreads that compile although their target has no such property: spreads.test.ts must find them. */

interface Options {
  readonly range: number;
}

const ports = () => ({ range: 1, reserved: 2 });
const use = ({ range }: Options) => range;
const isLimited = ports().range > 0;

use({ ...{ range: 1, reserved: 2 } });
use({ ...ports() });
use({ range: 1, ...(isLimited && { limit: 3 }) });
use({ ...(isLimited ? { ...ports() } : { range: 2 }) });
