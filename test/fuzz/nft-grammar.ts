import assert from 'node:assert/strict';
import { isIP } from 'node:net';
import type { Element } from '../../src/capture/nft/element.ts';
import type { ElementChange } from '../../src/capture/nft/nft-kernel.ts';
import type { IpFamily } from '../../src/model/address.ts';

/* Every line that this program may give to nft, and every element. Written without the code that writes them. */

const TABLE = 'ip6? kube-userspace-proxy';
const CHAIN = '(?:to-(?:portal|local|drop)|(?:portals|nodeports)-(?:in|out)|input|from-\\w{16})';
const SET =
  '(?:(?:portals|nodeports)(?:-local)?|conditions(?:-out)?|nodeport-conditions|spared|let-in|health-checks|local-ports|retired)';
const KEY = '(?:ip6? daddr \\. )?meta l4proto \\. th dport';
const ADDRESS = '(?<address>[0-9.]+|\\[[0-9a-f:.]+\\])?';
const NETWORK = '[0-9a-f:.]+/\\d{1,3}';
const TYPES = 'type (?:ipv[46]_addr \\. )?inet_proto \\. inet_service(?: : (?:inet_service|verdict))?;';
const MARK = '0x[0-9a-f]{1,8}';

const RULES = [
  `meta l4proto \\{ tcp, udp \\} dnat to ${ADDRESS}:(?:${KEY} map @${SET}|[19])`,
  `(?<to>ip6? daddr (?:\\{ ${NETWORK}(?:, ${NETWORK})* \\}|[0-9a-f:.]+) )?(?:meta l4proto \\{ tcp, udp \\} )?` +
    `(?:dnat to ${ADDRESS.replace('address', 'other')}:${KEY} map @${SET}|${KEY} (?:vmap @${SET}|@${SET} (?:return|dnat to ${ADDRESS}:1)))`,
  'fib daddr type != local return',
  `meta mark & (?<mark>${MARK}) == \\k<mark> return`,
  'ct state != new accept',
  'ct status dnat udp dport 1 reject',
  'ct status dnat meta l4proto \\{ tcp, udp \\} th dport 9 drop',
  `(?:ct status dnat (?:tcp dport 1|${KEY} @${SET})|${KEY} @${SET}) meta mark set meta mark \\| ${MARK}`,
  `(?:ip6? saddr (?<source>${NETWORK}) )?(?:iifname "[\\w.@-]{1,15}\\*?" )?goto ${CHAIN}`,
];

const LINES = [
  `table ${TABLE}(?: \\{)?`,
  '  comment "of kube-userspace-proxy, which repairs it: do not edit"',
  `  (?:map|set) ${SET} \\{ ${TYPES}(?: flags timeout;)? \\}`,
  `  chain ${CHAIN} \\{(?: type (?:nat|filter) hook (?:prerouting|output|input) priority -\\d+;)? \\}`,
  '\\}',
  `(?:add|flush|delete) chain ${TABLE} ${CHAIN}`,
  `delete table ${TABLE}`,
].map((line) => new RegExp(`^${line}$`));

const ADDED = new RegExp(`^add rule ${TABLE} ${CHAIN} (.*)$`);
const ADDED_RULES = RULES.map((rule) => new RegExp(`^${rule}$`));
const NAME =
  /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?(?::[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)?(?: local)?$/;

/** Throws for a text in which any line is other than those that make our tables, with addresses that are valid. */
export function checkNftText(text: string, family: IpFamily): void {
  assert.ok(text.endsWith('\n'));
  for (const line of text.split('\n').slice(0, -1)) {
    assert.ok(line.length < 2_000, `a line of ${line.length} characters`);
    const rule = ADDED.exec(line)?.[1];
    const matches = (rule === undefined ? LINES : ADDED_RULES).map((each) => each.exec(rule ?? line));
    const match = matches.find((each) => each !== null);
    assert.ok(match, `unexpected line ${JSON.stringify(line)}`);
    assert.ok(!line.includes(family === 'IPv4' ? ' ip6 ' : ' ip '), `another family in ${line}`);
    const pattern = family === 'IPv4' ? /\d+\.[\d.]+/g : /[0-9a-f]*:[0-9a-f]*:[0-9a-f:.]*/g;
    const addresses = line.replace(/"[^"]*"/g, '').match(pattern) ?? [];
    for (const each of addresses) assert.equal(isIP(each), family === 'IPv4' ? 4 : 6, `${each} in ${line}`);
  }
}

/** Throws for elements that nobody claims. */
export function checkElements({ deleted, added }: ElementChange, family: IpFamily): void {
  for (const element of [...deleted, ...added]) checkElement(element, family);
}

function checkElement({ address, port, data, comment }: Element, family: IpFamily): void {
  assert.match(comment, NAME);
  assert.ok(comment.length <= 250, `a comment of ${comment.length} characters`);
  if (address !== undefined) assert.equal(isIP(address), family === 'IPv4' ? 4 : 6, address);
  assert.ok(port >= 1 && port <= 65_535, `port ${port}`);
  if (typeof data === 'number') assert.ok(data >= 1 && data <= 65_535, `port ${data}`);
  if (typeof data === 'string') assert.match(data, new RegExp(`^${CHAIN}$`));
}
