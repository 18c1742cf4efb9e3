// Pages are complete without this script. It makes them follow the file: a tick of the stream says that
// something was committed, the page asks for itself, and what has changed is morphed in.
"use strict";
(() => {
  const body = document.body, live = document.getElementById("live"), trouble = document.getElementById("trouble");
  document.documentElement.classList.add("js");
  const content = () => document.getElementById("content");

  // The bar of verbs for the selected jobs shows their number, and is hidden without any.
  const count = () => {
    const bar = document.querySelector("[data-bulk]");
    if (!bar) return;
    const n = Number(bar.dataset.others) + document.querySelectorAll("tbody input[name=pick]:checked").length;
    bar.classList.toggle("some", n > 0);
    bar.querySelector("[data-count]").textContent = `${n} selected`;
  };
  // Forms behind a button close like menus.
  const closeForms = (target) => { for (const d of document.querySelectorAll(".pop[open]")) if (!d.contains(target)) d.open = false; };

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
  // The zone is the operator's choice. Without the script, all times are UTC.
  const zones = document.getElementById("zones");
  let zone = "local";
  try { zone = localStorage.getItem("honker-zone") || zone; } catch { /* storage may be forbidden */ }
  const two = (n) => String(n).padStart(2, "0");
  const absolute = (stamp, kind) => {
    const utc = zone === "utc", at = new Date(stamp), get = (part) => at[(utc ? "getUTC" : "get") + part]();
    const clock = `${two(get("Hours"))}:${two(get("Minutes"))}`;
    if (kind === "clock") return clock;
    if (kind === "second") return `${clock}:${two(get("Seconds"))}`;
    if (kind === "day") return `${at.toLocaleString("en", { month: "short", timeZone: utc ? "UTC" : undefined })} ${get("Date")} ${clock}`;
    return `${get("FullYear")}-${two(get("Month") + 1)}-${two(get("Date"))} ${clock}:${two(get("Seconds"))}`;
  };
  const relative = (t, now) => {
    const d = (now - Date.parse(t.dateTime)) / 1000, w = words(Math.abs(d));
    return t.dataset.as === "age" ? w : Math.abs(d) < 1 ? "now" : d < 0 ? `in ${w}` : `${w} ago`;
  };
  const writeTimes = () => {
    const now = Date.now() + offset;
    for (const t of document.querySelectorAll("time[data-as]")) {
      const ago = t.dataset.as === "ago" || t.dataset.as === "age";
      const text = ago ? relative(t, now) : absolute(t.dateTime, t.dataset.as);
      if (t.textContent !== text) t.textContent = text;
      if (ago) { const title = absolute(t.dateTime) + (zone === "utc" ? " UTC" : ""); if (t.title !== title) t.title = title; }
    }
  };
  const setZone = () => {
    for (const b of zones?.children ?? []) b.setAttribute("aria-pressed", b.dataset.zone === zone);
    document.getElementById("zone").textContent = zone === "utc" ? "Times are UTC." : `Times are of ${Intl.DateTimeFormat().resolvedOptions().timeZone || "this browser"}.`;
    writeTimes();
  };
  if (zones) {
    zones.hidden = false;
    zones.addEventListener("click", (e) => {
      if (!e.target.dataset.zone) return;
      zone = e.target.dataset.zone;
      try { localStorage.setItem("honker-zone", zone); } catch { /* the choice lasts for this page */ }
      setZone();
    });
  }
  setZone();

  // --- following the file
  let tag = null, asking = false, again = false, leaving = false, notBefore = 0, changes = 0, timer = 0, stream = null, poll = 0, hello = 0;
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
    count();
  };
  const ask = async (force) => {
    clearTimeout(timer);
    if (document.hidden || leaving) return;
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
  // --- a search goes on by itself for a few seconds
  const patience = 5000;
  let spent = 0, stopper = null;
  const searching = (on) => document.documentElement.classList.toggle("searching", on);
  const search = async () => {
    const at = content()?.querySelector("[data-search]");
    if (!at || asking || document.hidden || spent >= patience || busy()) { searching(false); return; }
    const url = new URL(location.href), began = performance.now();
    url.searchParams.set("on", at.dataset.search);
    for (const name of ["after", "patient"]) url.searchParams.delete(name);
    asking = true;
    stopper = new AbortController();
    searching(true);
    try {
      const answer = await fetch(url, { headers: { "Honker-Fragment": "1", "Honker-Search": "1", Accept: "text/html" }, cache: "no-store", credentials: "same-origin", signal: stopper.signal });
      if (answer.status !== 200) { spent = patience; return; }
      const text = await answer.text();
      if (busy()) return;
      history.replaceState(null, "", url);
      tag = null;
      morph(text);
    } catch {
      spent = patience; // stopped, or the server does not answer
    } finally {
      spent += performance.now() - began;
      asking = false;
      if (again && spent >= patience) { again = false; ask(false); }
      setTimeout(search, 20);
    }
  };
  document.addEventListener("click", (e) => { if (e.target.closest("[data-stop]")) { spent = patience; stopper?.abort(); searching(false); } });

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
  search();

  // --- forms and links
  const here = new URL(location.href);
  if (here.searchParams.has("did")) {
    for (const name of ["did", "n", "skipped", "over", "of"]) here.searchParams.delete(name);
    history.replaceState(null, "", here);
  }
  document.addEventListener("submit", (e) => { // a filter's URL has what was filled in
    leaving = e.target.method === "post"; // its page may be gone with the change, and the next one comes anyway
    if (e.target.method !== "get") return;
    const empty = [...e.target.elements].filter((x) => x.name && !x.disabled && x.value === "");
    for (const x of empty) x.disabled = true;
    setTimeout(() => { for (const x of empty) x.disabled = false; });
  });
  document.addEventListener("change", (e) => {
    if (e.target.matches("[data-all]")) for (const box of e.target.form.querySelectorAll("tbody input[name=pick]")) box.checked = e.target.checked;
    count();
  });
  addEventListener("pageshow", () => { leaving = false; }); // also when the browser goes back to this page
  count();
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") closeForms(null); });
  document.addEventListener("click", (e) => closeForms(e.target));

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
  const focus = (field, e) => { if (field) { e.preventDefault(); field.focus(); field.select(); } };
  const find = document.getElementById("find");
  document.addEventListener("keydown", (e) => {
    if (e.key === "k" && (e.ctrlKey || e.metaKey) && !keys.open) { focus(find, e); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input:not([type=checkbox]), textarea, select") || keys.open) return;
    const current = row && document.getElementById(row);
    if (performance.now() < went) {
      went = 0;
      const to = document.querySelector(`.rail a[data-key="${CSS.escape(e.key)}"]`);
      if (to) { e.preventDefault(); to.click(); }
      return;
    }
    switch (e.key) {
      case "/": focus(find, e); break;
      case "f": focus(document.querySelector("[data-filter]"), e); break;
      case "g": went = performance.now() + 1200; break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "x": current?.querySelector("input[type=checkbox]")?.click(); break;
      case "Enter": if (current && !e.target.closest("a, button, summary, input")) current.querySelector("[data-open]")?.click(); break;
      case "?": keys.showModal(); break;
    }
  });
})();
