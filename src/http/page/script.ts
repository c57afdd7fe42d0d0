import { MAX_OPEN } from './page-query.ts';

/**
 * Keeps the page live: the server sends parts as HTML again and again, and this patches what differs. Links and the
 * search form work without it; here they change what the server sends next, without loading the page.
 */
export const SCRIPT = `
'use strict';
const parts = ['mark', 'overview', 'plots', 'services', 'events'].map((id) => document.getElementById(id));
const form = document.querySelector('form');
const live = document.getElementById('live');
const pause = document.getElementById('pause');
// The query whose answer is on the page.
let shown = location.search;
let stream;
let again;

// Patches the old tree only where the new one differs, so that focus, selection and scrolling stay.
function patch(old, fresh) {
  if (old.nodeName !== fresh.nodeName || (old.id || '') !== (fresh.id || '')) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...(old.attributes ?? [])]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes ?? []) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  patchChildren(old, fresh);
}

function patchChildren(old, fresh) {
  const added = [...fresh.childNodes];
  const staying = new Set(added.map(({ id }) => id));
  for (const child of [...old.children]) if (child.id && !staying.has(child.id)) child.remove();
  const known = new Map([...old.children].map((child) => [child.id, child]));
  added.forEach((child, index) => {
    const there = old.childNodes[index];
    // A row that has moved takes its element along.
    const own = child.id && known.get(child.id);
    if (own) {
      if (own !== there) old.insertBefore(own, there ?? null);
      patch(own, child);
    } else if (there && !there.id) patch(there, child);
    // The element here belongs further down.
    else old.insertBefore(child, there ?? null);
  });
  while (old.childNodes.length > added.length) old.lastChild.remove();
}

// Servers write times in UTC; readers want theirs.
function localize(content) {
  for (const time of content.querySelectorAll('time')) time.textContent = new Date(time.dateTime).toLocaleString();
  for (const utc of content.querySelectorAll('.utc')) utc.textContent = '';
}

// contentOf: the new content of a part, undefined where it is the same.
function show(contentOf) {
  const focused = document.activeElement;
  for (const part of parts) {
    const content = contentOf(part.id);
    if (!content) continue;
    localize(content);
    patchChildren(part, content);
  }
  // An element that is moved loses the focus.
  if (focused && focused !== document.activeElement) document.getElementById(focused.id)?.focus({ preventScroll: true });
}

function contentOfText(text) {
  if (text === undefined) return undefined;
  const template = document.createElement('template');
  template.innerHTML = text;
  return template.content;
}

function say(text, isBad) {
  live.textContent = text;
  live.className = isBad ? 'bad' : 'dim';
}

function connect() {
  stream?.close();
  clearTimeout(again);
  if (pause.getAttribute('aria-pressed') === 'true' || document.hidden) {
    say('paused');
    return showOnce();
  }
  const { search } = location;
  stream = new EventSource('/status/live' + search);
  stream.onmessage = ({ data }) => {
    const texts = JSON.parse(data);
    show((id) => contentOfText(texts[id]));
    shown = search;
    say('live');
  };
  // Refused or lost: the browser reconnects by itself only in some of these cases.
  stream.onerror = () => {
    say('connection lost, trying again', true);
    if (stream.readyState !== EventSource.CLOSED) return;
    again = setTimeout(connect, 5000);
    showOnce();
  };
}

// Shows a new query without a stream: while paused, or when other people have taken all streams.
function showOnce() {
  const { search } = location;
  if (search === shown) return;
  const failed = () => say('no answer, try again', true);
  fetch('/status' + search).then(async (answer) => {
    const text = await answer.text();
    if (search !== location.search || search === shown) return;
    if (!answer.ok) return failed();
    const page = new DOMParser().parseFromString(text, 'text/html');
    show((id) => page.getElementById(id));
    shown = search;
  }).catch(failed);
}

function go(wanted) {
  history.replaceState(null, '', '?' + wanted);
  connect();
}

// A link may be older than the current query, so only the parameters that it is meant to change are taken from it.
const ALTERED = { sort: ['sort', 'reversed', 'page'], page: ['page'] };
function goAlong(link) {
  const wanted = new URLSearchParams(location.search);
  const own = new URLSearchParams(link.getAttribute('href'));
  const [kind] = link.id.split('-', 1);
  for (const name of ALTERED[kind] ?? []) {
    wanted.delete(name);
    if (own.has(name)) wanted.set(name, own.get(name));
  }
  if (kind === 'row') {
    const key = link.id.slice('row-'.length);
    const open = wanted.getAll('open').filter((each) => each !== key);
    if (own.getAll('open').includes(key)) open.push(key);
    wanted.delete('open');
    for (const each of open.slice(-${MAX_OPEN})) wanted.append('open', each);
  }
  go(wanted);
}

document.addEventListener('click', (event) => {
  const link = event.target.closest('a');
  if (!link || !link.getAttribute('href').startsWith('?') || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  goAlong(link);
});
document.addEventListener('keydown', (event) => {
  if (event.key === ' ' && event.target.getAttribute('role') === 'button' && event.target.tagName === 'A') {
    event.preventDefault();
    event.target.click();
  }
});

function search() {
  const wanted = new URLSearchParams(location.search);
  const typed = new FormData(form);
  for (const name of ['page', 'q', 'hide']) wanted.delete(name);
  for (const name of ['q', 'hide']) if (typed.get(name)) wanted.set(name, typed.get(name));
  go(wanted);
}
let typing;
form.addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(search, 150);
});
form.addEventListener('submit', (event) => {
  event.preventDefault();
  search();
});
pause.addEventListener('click', () => {
  pause.setAttribute('aria-pressed', String(pause.getAttribute('aria-pressed') !== 'true'));
  connect();
});
document.addEventListener('visibilitychange', connect);
localize(document);
for (const element of document.querySelectorAll('[data-needs-script]')) element.hidden = false;
for (const element of document.querySelectorAll('[data-without-script]')) element.hidden = true;
connect();
`;
