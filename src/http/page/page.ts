import { createHash } from 'node:crypto';
import type { NodeView } from '../../model/view.ts';
import { type Content, Html, html } from './html.ts';
import { type PageQuery, pageParameters, printPageQuery } from './page-query.ts';
import type { Parts } from './parts.ts';
import { SCRIPT } from './script.ts';
import { STYLE } from './style.ts';

/** Nothing from anywhere but this server, no frame around it, and no script or style but the page's own. */
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

/** The mark of two arrows that part, as a picture for the browser's tab. */
const ICON =
  'data:image/svg+xml,%3Csvg xmlns=%22http://www.w3.org/2000/svg%22 viewBox=%220 0 16 16%22%3E%3Cpath fill=%22none%22 stroke=%22%230b68cb%22 stroke-width=%222%22 d=%22M1 8h5l4-4h5M6 8l4 4h5%22/%3E%3C/svg%3E';

/** The whole document, as it is without JavaScript. */
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

/** What a search leaves as it is; of what it finds, the first page is shown. */
function unseenFields(query: PageQuery): Content {
  const others = pageParameters({ ...query, words: [], hideHealthy: false, page: 1 });
  return [...others].map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`);
}

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`;
}
