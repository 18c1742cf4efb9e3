// Pages are complete without this script. It makes them follow the file: a tick of the stream says that
// something was committed, the page asks for itself, and what has changed is morphed in.
"use strict";
(() => {
  const body = document.body, live = document.getElementById("live"), trouble = document.getElementById("trouble");
  document.documentElement.classList.add("js");
  const content = () => document.getElementById("content");

  // --- times, from the server's clock
  let offset = Date.parse(body.dataset.now) - Date.now();
  const words = (s) => {
    const two = (a, x, b, y) => b ? `${a}${x}${b}${y}` : `${a}${x}`;
    s = Math.floor(s);
    if (s < 60) return `${s}s`;
    if (s < 3600) return two(Math.floor(s / 60), "m", s % 60, "s");
    if (s < 86400) return two(Math.floor(s / 3600), "h", Math.floor(s % 3600 / 60), "m");
    return two(Math.floor(s / 86400), "d", Math.floor(s % 86400 / 3600), "h");
  };
  const writeTimes = () => {
    const now = Date.now() + offset;
    for (const t of document.querySelectorAll("time[data-as]")) {
      const d = (now - Date.parse(t.dateTime)) / 1000, w = words(Math.abs(d));
      const text = t.dataset.as === "age" ? w : Math.abs(d) < 1 ? "now" : d < 0 ? `in ${w}` : `${w} ago`;
      if (t.textContent !== text) t.textContent = text;
    }
  };

  // --- following the file
  let tag = null, asking = false, again = false, notBefore = 0, changes = 0, timer = 0, stream = null, poll = 0, hello = 0;
  const state = (kind, text) => {
    if (!live) return;
    live.hidden = false;
    live.className = `live ${kind}`;
    const label = live.querySelector(".text");
    if (kind === "waiting") {
      label.innerHTML = "<button type=\"button\" class=\"small\"></button>";
      label.firstChild.textContent = text;
      label.firstChild.onclick = () => ask(true);
    } else if (label.textContent !== text || label.firstElementChild) label.textContent = text;
  };
  // A form that is being filled in, an open dialog and a marked text are not pulled away.
  const busy = () => {
    const at = document.activeElement, marked = document.getSelection();
    return document.querySelector("dialog[open]") !== null ||
      content()?.contains(at) && at.matches("input:not([type=checkbox]), textarea, select") ||
      marked && !marked.isCollapsed && content()?.contains(marked.anchorNode);
  };
  const changed = (e) => e.matches("input, textarea, select") &&
    (e.type === "checkbox" || e.type === "radio" ? e.checked !== e.defaultChecked : e.tagName !== "SELECT" && e.value !== e.defaultValue);
  const morph = (html) => {
    Idiomorph.morph(content(), html, {
      morphStyle: "outerHTML",
      callbacks: {
        beforeNodeMorphed: (node) => !(node.nodeType === 1 && (changed(node) || node.tagName === "SELECT" && node === document.activeElement)),
        beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
        afterNodeAdded: (node) => { if (node.nodeName === "TR" && node.id) node.classList.add("fresh"); },
      },
    });
    writeTimes();
    mark();
    later();
  };
  const ask = async (force) => {
    clearTimeout(timer);
    if (document.hidden) return;
    if (asking) { again = true; return; }
    if (!force && busy()) { changes++; state("waiting", changes === 1 ? "1 change" : `${changes} changes`); return; }
    const wait = notBefore - performance.now();
    if (wait > 0) { timer = setTimeout(ask, wait, force); return; }
    asking = true;
    const began = performance.now();
    try {
      const headers = { "Honker-Fragment": "1", Accept: "text/html" };
      if (tag) headers["If-None-Match"] = tag;
      const answer = await fetch(location.href, { headers, cache: "no-store", credentials: "same-origin" });
      const text = answer.status === 200 ? await answer.text() : "";
      if (answer.status === 200 && answer.headers.get("Honker-Now")) {
        if (!force && busy()) { changes++; state("waiting", `${changes} changes`); return; }
        offset = Date.parse(answer.headers.get("Honker-Now")) - Date.now();
        tag = answer.headers.get("ETag");
        morph(text);
      } else if (answer.status !== 304) {
        state("off", "not live"); trouble.textContent = `The page could not be refreshed: ${answer.status}.`; return;
      }
      changes = 0;
      trouble.textContent = poll ? why : "";
      state(poll ? "off" : "", poll ? "every 5 s" : "live");
    } catch {
      state("off", "no answer");
    } finally {
      // A page that takes long is asked for less often: looking costs a tenth of a core at most.
      notBefore = performance.now() + Math.min(5000, Math.max(250, 10 * (performance.now() - began)));
      asking = false;
      if (again) { again = false; ask(false); }
    }
  };
  // Some things change by time alone: the page says when the next one does.
  let due = 0;
  const later = () => {
    clearTimeout(due);
    const wait = Date.parse(content()?.dataset.next) - (Date.now() + offset);
    if (wait > 0) due = setTimeout(ask, Math.min(wait + 1100, 3600e3), false);
  };

  const why = "Live updates are not available, so this page asks every 5 s. A proxy may buffer streams, or too many pages are open.";
  const fallBack = () => {
    close();
    if (document.hidden) return;
    poll = setInterval(ask, 5000, false);
    state("off", "every 5 s");
    trouble.textContent = why;
  };
  const close = () => {
    stream?.close();
    stream = null;
    clearTimeout(hello);
    clearInterval(poll);
    poll = 0;
  };
  const open = () => {
    close();
    stream = new EventSource(body.dataset.events);
    hello = setTimeout(fallBack, 3000);
    stream.addEventListener("hello", () => { clearTimeout(hello); trouble.textContent = ""; state("", "live"); ask(false); });
    stream.addEventListener("tick", () => ask(false));
    stream.onerror = () => {
      if (stream?.readyState === EventSource.CLOSED) fallBack(); else state("off", "connecting");
    };
  };
  const follow = () => { if (document.hidden) { close(); clearTimeout(timer); clearTimeout(due); } else { open(); later(); writeTimes(); } };
  if (body.dataset.events && window.EventSource && content()) {
    follow();
    document.addEventListener("visibilitychange", follow);
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", (e) => { if (e.persisted) follow(); });
    // What had to wait comes when the form, the dialog or the mark is gone.
    for (const kind of ["focusout", "selectionchange"]) document.addEventListener(kind, () => { if (changes) setTimeout(() => { if (changes && !busy()) ask(false); }, 300); });
  }
  setInterval(() => { if (!document.hidden) writeTimes(); }, 1000);
  writeTimes();

  // --- forms and links
  const here = new URL(location.href);
  if (here.searchParams.has("did")) {
    for (const name of ["did", "n", "skipped"]) here.searchParams.delete(name);
    history.replaceState(null, "", here);
  }
  document.addEventListener("submit", (e) => { // a filter's URL has what was filled in
    if (e.target.method !== "get") return;
    const empty = [...e.target.elements].filter((x) => x.name && !x.disabled && x.value === "");
    for (const x of empty) x.disabled = true;
    setTimeout(() => { for (const x of empty) x.disabled = false; });
  });
  document.addEventListener("change", (e) => {
    if (!e.target.matches("[data-all]")) return;
    for (const box of e.target.form.querySelectorAll("tbody input[name=pick]")) box.checked = e.target.checked;
  });

  // --- keys
  const keys = document.getElementById("keys"), help = document.getElementById("help");
  help.hidden = false;
  help.onclick = () => keys.showModal();
  let row = null, went = 0;
  const rows = () => [...document.querySelectorAll("[data-row]")];
  const mark = () => { for (const r of rows()) r.classList.toggle("at", row !== null && r.id === row); };
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((r) => r.id === row), to = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
    row = to.id;
    mark();
    to.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input:not([type=checkbox]), textarea, select") || keys.open) return;
    const current = row && document.getElementById(row);
    if (performance.now() < went) {
      went = 0;
      const to = document.querySelector(`nav a[data-key="${CSS.escape(e.key)}"]`);
      if (to) { e.preventDefault(); to.click(); }
      return;
    }
    switch (e.key) {
      case "/": { const f = document.querySelector("[data-filter]"); if (f) { e.preventDefault(); f.focus(); f.select(); } break; }
      case "g": went = performance.now() + 1200; break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "x": current?.querySelector("input[type=checkbox]")?.click(); break;
      case "Enter": if (current && !e.target.closest("a, button, summary, input")) current.querySelector("[data-open]")?.click(); break;
      case "?": keys.showModal(); break;
    }
  });
})();
