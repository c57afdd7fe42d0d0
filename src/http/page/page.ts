import { createHash } from 'node:crypto';
import type { NodeView } from '../../model/view.ts';
import { type Content, Html, html } from './html.ts';
import { type PageQuery, pageParameters, printPageQuery } from './page-query.ts';
import { SCRIPT } from './script.ts';

const STYLE = `
:root { color-scheme: light dark; --text: #1c2024; --dim: #666d75; --ground: #fff; --raised: #f4f5f7; --line: #d9dce0;
  --good: #18794e; --warn: #96540a; --bad: #c62a2f; --a: #0b68cb; --b: #8145b5; --c: #c62a2f; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e6e9; --dim: #9ba1a8; --ground: #14171a; --raised: #1e2226; --line: #353b41;
    --good: #4cc38a; --warn: #f0a03c; --bad: #ff8589; --a: #6cb6ff; --b: #c99bf2; --c: #ff8589; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 110rem; padding: 1rem 1.25rem 2rem; background: var(--ground); color: var(--text);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.5rem 0 .4rem; }
p { margin: .35rem 0; } a { color: var(--a); } small, .dim, caption { color: var(--dim); }
header { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: baseline; }
header nav, #live { margin-left: auto; } #live + nav { margin-left: 0; }
.mark, .state, .level { display: inline-block; border-radius: .7em; padding: 0 .6em; border: 1px solid currentColor; font-weight: 600; font-size: .9em; }
.good b, .mark.good, .state.ok, .state.active { color: var(--good); }
.warn b, .mark.warn, p.warn, .state.waiting, .state.degraded, .state.pending, .state.failing, .state.ejected, .state.draining, .state.drained, .level.warn { color: var(--warn); }
.bad b, .mark.bad, .state.down, .state.empty, .level.error, .failed { color: var(--bad); }
.level.info, .state.idle { color: var(--dim); }
dl.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(8rem, 1fr)); gap: .5rem; margin: .6rem 0; }
.tiles div { background: var(--raised); border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .6rem; overflow-wrap: anywhere; }
dt { color: var(--dim); font-size: .85em; } dd { margin: 0; } dd b { display: block; font-size: 1.15em; } dd span { color: var(--dim); font-size: .85em; display: block; }
.tiles :not(.bad) > dd span { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
#plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: .75rem; }
figure { margin: 0; } figcaption { display: flex; flex-wrap: wrap; gap: .2rem .7rem; }
figcaption .dim { margin-left: auto; }
figure svg { width: 100%; height: 64px; display: block; background: var(--raised); border: 1px solid var(--line); border-radius: .3rem; }
polyline { fill: none; stroke-width: 1.5; vector-effect: non-scaling-stroke; }
polyline.a { stroke: var(--a); } polyline.b { stroke: var(--b); } polyline.c { stroke: var(--c); }
.key.a { color: var(--a); } .key.b { color: var(--b); } .key.c { color: var(--c); }
form { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .5rem 0; }
input[type=search] { font: inherit; padding: .3rem .5rem; width: 22rem; max-width: 100%; }
button { font: inherit; padding: .25rem .7rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .22rem .45rem; border-bottom: 1px solid var(--line); white-space: nowrap; font-weight: inherit; }
thead th { color: var(--dim); font-size: .88em; position: sticky; top: 0; background: var(--ground); }
thead a { color: inherit; } th[aria-sort=ascending] a::after { content: " ▲"; } th[aria-sort=descending] a::after { content: " ▼"; }
.cut { display: inline-block; max-width: 17rem; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom; }
td .cut { max-width: 12rem; } a.mark { text-decoration: none; }
.number { text-align: right; } tbody th a { text-decoration: none; font-weight: 600; }
tbody tr:hover > * { background: var(--raised); }
tr.open > td { background: var(--raised); padding: .6rem 1rem; white-space: normal; }
tr.open .endpoints thead th, tr.open .endpoints { background: none; } caption { text-align: left; padding: .4rem .6rem .1rem; }
.facts { display: flex; flex-wrap: wrap; gap: .1rem 1.5rem; list-style: none; margin: 0; padding: 0 .6rem; }
.error, .events td:last-child { white-space: normal; overflow-wrap: anywhere; }
.field { margin-left: .5em; color: var(--dim); } .field i { font-style: normal; opacity: .75; } .field i::after { content: "="; }
svg.share { width: 6rem; height: .65em; } .share .all { fill: var(--line); } .share .part { fill: var(--a); }
nav a, nav span { margin-right: .5rem; }
[hidden] { display: none; }
/* On a telephone, Services come first, and what is wrong with them is in sight. */
@media (max-width: 40rem) {
  body { padding: .6rem .6rem 1.5rem; } main { display: flex; flex-direction: column; } main > * { min-width: 0; }
  #overview, #plots { order: 1; } #plots { margin-top: .5rem; } h2 { margin-top: .6rem; }
  .wide { display: none; } th .cut { max-width: 8.5rem; } th, td { padding: .22rem .3rem; }
  input[type=search] { width: 100%; }
}
`;

/** The parts that change, by the id of their element. */
export type Parts = Readonly<Record<'mark' | 'overview' | 'plots' | 'services' | 'events', Html>>;

/** Allows nothing from other servers, no frames around the page, and only its own script and style. */
export const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  `script-src '${hashOf(SCRIPT)}'`,
  `style-src '${hashOf(STYLE)}'`,
  "connect-src 'self'",
  'img-src data:',
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Two arrows that part, for the browser's tab. */
const ICON =
  'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 16 16%22%3E%3Cpath fill=%22none%22 stroke=%22%230b68cb%22 stroke-width=%222%22 d=%22M1 8h5l4-4h5M6 8l4 4h5%22/%3E%3C/svg%3E';

/** The whole document, which works without JavaScript. */
export function page({ nodeName }: NodeView, parts: Parts, query: PageQuery): string {
  const { words, hideHealthy } = query;
  return html`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${nodeName} · kube-userspace-proxy</title>
<link rel="icon" href="${ICON}">
<style>${new Html(STYLE)}</style>
</head>
<body>
<header><h1>kube-userspace-proxy on ${nodeName}</h1> <span id="mark">${parts.mark}</span>
<span id="live" class="dim" role="status"></span>
<nav aria-label="Other forms"><a href="/status.csv">CSV</a> <a href="/status.json">JSON</a> <a href="/metrics">metrics</a></nav></header>
<main>
<section id="overview" aria-label="Overview">${parts.overview}</section>
<section id="plots" aria-label="The last fifteen minutes">${parts.plots}</section>
<h2>Services</h2>
<form action="/status" role="search">
<input type="search" name="q" value="${words.join(' ')}" placeholder="name, address, port, state" aria-label="Search Services">
<label><input type="checkbox" name="hide" value="healthy"${new Html(hideHealthy ? ' checked' : '')}> hide healthy</label>
<span data-without-script><button>Search</button> <a href="${printPageQuery(query)}">Reload</a></span>${unseenFields(query)}
<button type="button" id="pause" aria-pressed="false" data-needs-script hidden>Pause</button>
</form>
<section id="services" aria-label="Services">${parts.services}</section>
<h2>Recent events</h2>
<section id="events" aria-label="Recent events">${parts.events}</section>
</main>
<script>${new Html(SCRIPT)}</script>
</body>
</html>
`.text;
}

/** A search keeps the order and the open rows, and shows the first page of what it finds. */
function unseenFields(query: PageQuery): Content {
  const others = pageParameters({ ...query, words: [], hideHealthy: false, page: 1 });
  return [...others].map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`);
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
