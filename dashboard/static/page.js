// Keeps a page of the dashboard up to date. Without this script the page is complete.
//
// The server renders the fragment of the page, and sends what has changed. This script replaces
// the old one, and keeps focus, scroll position, open details and selected text.
(() => {
  "use strict";

  const live = document.getElementById("live");
  const status = document.getElementById("status");
  const button = document.getElementById("pause");

  keys();
  const form = document.querySelector("form.filter");
  for (const name of ["sort", "kind", "waiters"]) form?.elements[name].addEventListener("change", () => form.requestSubmit());
  if (!live || !status || !button) return;

  const firstPause = 1000, longestPause = 30000; // between two attempts, in ms
  const silence = 90000; // a stream without any event for this long is broken
  const pollEvery = 2000; // without a stream
  const seats = 4; // streams of one browser: it has six connections to a server

  let paused = false; // by the user
  let source = null; // the stream
  let timer = 0; // of the next attempt, the next poll, or the end of the silence
  let failures = 0; // since the last event
  let worked = false; // the stream has sent an event
  let leave = null; // gives the seat to another tab
  let run = 0; // number of the current connection: answers to earlier ones are dropped
  let held = null; // a fragment that waits until no text is selected

  function show(state, text) {
    if (status.dataset.state !== state) {
      status.dataset.state = state;
      status.textContent = text || state;
    }
  }

  // The state of a page that must survive the replacement of its fragment.
  function keyOf(element) {
    return element.dataset.key || element.getAttribute("href") || element.id || "";
  }

  function selecting() {
    const s = document.getSelection();
    return s && !s.isCollapsed && live.contains(s.anchorNode);
  }

  function replace(fragment) {
    if (selecting()) {
      held = fragment;
      return;
    }
    held = null;
    const active = live.contains(document.activeElement) ? document.activeElement : null;
    const key = active && keyOf(active);
    const same = active ? [...live.querySelectorAll(active.tagName)].filter((e) => keyOf(e) === key).indexOf(active) : 0;
    const open = new Set([...live.querySelectorAll("details[open]")].map(keyOf));
    const scrolled = [...live.querySelectorAll("[data-scroll]")].map((e) => [e.dataset.scroll, e.scrollLeft, e.scrollTop]);
    live.innerHTML = fragment;
    for (const d of live.querySelectorAll("details")) if (open.has(keyOf(d))) d.open = true;
    for (const [name, left, top] of scrolled) {
      const e = live.querySelector(`[data-scroll="${CSS.escape(name)}"]`);
      if (e) e.scrollTo(left, top);
    }
    if (!active) return;
    const equal = [...live.querySelectorAll(active.tagName)].filter((e) => keyOf(e) === key);
    const again = equal[same] || equal[0];
    if (again) again.focus({ preventScroll: true });
  }

  // patched returns the text that a delta makes from an old one: each step says how much of that
  // to skip, how much to copy, and what to append.
  function patched(old, steps) {
    let text = "", at = 0;
    for (let i = 0; i < steps.length; i += 3) {
      at += steps[i];
      text += old.slice(at, at + steps[i + 1]) + steps[i + 2];
      at += steps[i + 1];
    }
    return text;
  }

  function stop() {
    run++;
    clearTimeout(timer);
    if (source) source.close();
    source = null;
    if (leave) leave();
    leave = null;
  }

  function later(ms, next) {
    const mine = run;
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (mine === run) next();
    }, ms);
  }

  function retry() {
    stop();
    failures++;
    show("reconnecting");
    const pause = Math.min(firstPause * 2 ** (failures - 1), longestPause);
    later(pause * (0.5 + Math.random()), start);
  }

  function received(fragment) {
    failures = 0;
    if (fragment !== null) replace(fragment);
    show("live");
  }

  function stream() {
    const mine = run;
    let latest = ""; // the last fragment of this stream
    source = new EventSource(live.dataset.events);
    const on = (fragmentOf) => (e) => {
      if (mine !== run) return;
      worked = true;
      received(fragmentOf(e));
      later(silence, retry);
    };
    source.addEventListener("update", on((e) => (latest = e.data)));
    source.addEventListener("delta", on((e) => (latest = patched(latest, JSON.parse(e.data)))));
    source.addEventListener("same", on(() => null));
    source.addEventListener("error", () => {
      if (mine === run) retry();
    });
    later(silence, retry);
  }

  async function poll() {
    const mine = run;
    try {
      const answer = await fetch(live.dataset.fragment, { cache: "no-store", credentials: "same-origin" });
      if (!answer.ok) throw new Error(answer.statusText);
      const fragment = await answer.text();
      if (mine !== run) return;
      received(fragment);
      later(pollEvery, poll);
    } catch {
      if (mine === run) retry();
    }
  }

  // A tab without a seat polls. So does one whose stream has never worked: a proxy may
  // hold it back.
  async function start() {
    const mine = run;
    const streams = worked || failures < 2;
    const seat = streams && (await sit(mine));
    if (mine !== run) {
      if (seat) seat();
      return;
    }
    leave = seat || null;
    if (seat) stream();
    else poll();
  }

  // sit returns a function that leaves the seat, or null if all seats are in use. Browsers
  // offer locks to secure pages only; without them each tab has a seat.
  async function sit() {
    if (!navigator.locks) return () => {};
    for (let i = 0; i < seats; i++) {
      const seat = await new Promise((done) => {
        navigator.locks.request(`dibs-dashboard-${i}`, { ifAvailable: true }, (lock) => {
          if (!lock) return done(null);
          return new Promise((free) => done(free));
        }).catch(() => done(null));
      });
      if (seat) return seat;
    }
    return null;
  }

  // A hidden page has no stream.
  function update() {
    stop();
    if (paused || document.hidden) {
      show("paused");
      return;
    }
    if (status.dataset.state !== "live") show("connecting");
    start();
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume" : "Pause";
    failures = 0;
    update();
  });
  document.addEventListener("visibilitychange", update);
  document.addEventListener("selectionchange", () => {
    if (held !== null && !selecting()) replace(held);
  });
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", (e) => {
    if (e.persisted) update();
  });
  update();

  // keys moves with j and k from row to row, and with / to the filter. Enter opens a link,
  // as always.
  function keys() {
    document.addEventListener("keydown", (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
      if (e.target.closest("input, select, textarea, [contenteditable]")) {
        if (e.key === "Escape") e.target.blur();
        return;
      }
      if (e.key === "/") {
        const filter = document.getElementById("glob");
        if (!filter) return;
        e.preventDefault();
        filter.focus();
        filter.select();
      }
      if (e.key === "j" || e.key === "k") move(e.key === "j" ? 1 : -1);
    });
  }

  function move(by) {
    const links = [...document.querySelectorAll("[data-row]")].map((row) => row.querySelector("a[href]")).filter(Boolean);
    if (links.length === 0) return;
    const row = document.activeElement && document.activeElement.closest("[data-row]");
    const now = row ? links.indexOf(row.querySelector("a[href]")) : by > 0 ? -1 : links.length;
    const next = links[Math.max(0, Math.min(now + by, links.length - 1))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
})();
