/**
 * What makes the page live: the server sends its parts as HTML again and again, and this puts what differs in place. Links
 * and the search form work by themselves; here they alter what is sent next, without loading the page. The script's
 * hash stands in the Content-Security-Policy.
 */
export const SCRIPT = `
'use strict';
const parts = ['mark', 'overview', 'plots', 'services', 'events'].map((id) => document.getElementById(id));
const form = document.querySelector('form');
const live = document.getElementById('live');
const pause = document.getElementById('pause');
let stream;

// Alters the old tree only where the new one differs, so that focus, selection and scrolling stay.
function follow(old, fresh) {
  if (old.nodeName !== fresh.nodeName || (old.id || '') !== (fresh.id || '')) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...(old.attributes ?? [])]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes ?? []) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  followChildren(old, fresh);
}

function followChildren(old, fresh) {
  const added = [...fresh.childNodes];
  const known = new Map([...old.children].filter(({ id }) => id).map((child) => [child.id, child]));
  added.forEach((child, index) => {
    let there = old.childNodes[index];
    // A row that has moved brings its element along.
    const moved = child.id && known.get(child.id);
    if (moved && moved !== there) {
      old.insertBefore(moved, there ?? null);
      there = moved;
    }
    if (there === undefined) old.append(child);
    else follow(there, child);
  });
  while (old.childNodes.length > added.length) old.lastChild.remove();
}

function show(texts) {
  for (const part of parts) {
    const text = texts[part.id];
    if (text === undefined) continue;
    const template = document.createElement('template');
    template.innerHTML = text;
    followChildren(part, template.content);
  }
}

function say(text, isBad) {
  live.textContent = text;
  live.className = isBad ? 'bad' : 'dim';
}

function connect() {
  stream?.close();
  if (pause.getAttribute('aria-pressed') === 'true' || document.hidden) return say('paused');
  stream = new EventSource('/status/live' + location.search);
  stream.onmessage = ({ data }) => {
    show(JSON.parse(data));
    say('live');
  };
  // Refused or lost: the browser tries again by itself only in some of these cases.
  stream.onerror = () => {
    say('connection lost, trying again', true);
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

function go(search) {
  history.replaceState(null, '', search);
  connect();
}

document.addEventListener('click', (event) => {
  const link = event.target.closest('a');
  if (!link || !link.getAttribute('href').startsWith('?') || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(link.getAttribute('href'));
});
document.addEventListener('keydown', (event) => {
  if (event.key === ' ' && event.target.getAttribute('role') === 'button' && event.target.tagName === 'A') {
    event.preventDefault();
    event.target.click();
  }
});

function search() {
  const wanted = new URLSearchParams(location.search);
  wanted.delete('page');
  for (const name of ['q', 'hide']) wanted.delete(name);
  for (const [name, value] of new FormData(form)) if (value !== '') wanted.set(name, value);
  go('?' + wanted);
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
for (const element of document.querySelectorAll('[data-needs-script]')) element.hidden = false;
for (const element of document.querySelectorAll('[data-without-script]')) element.hidden = true;
connect();
`;
