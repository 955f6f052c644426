/* Lists with live rows: which rows this page shows (told to the socket), and which of them are chosen. */
"use strict";

(() => {
  // the server renders only the rows that this page shows; it checks access to each of them again
  document.addEventListener("htmx:wsOpen", (event) => {
    const list = event.target.closest("[data-live-rows]");
    if (!list) return;
    const prefix = list.dataset.liveRows;
    const rows = [...list.querySelectorAll(`[id^="${prefix}"]`)].map((row) => Number(row.id.slice(prefix.length)))
      .filter(Number.isInteger);
    event.detail.socketWrapper.sendImmediately(JSON.stringify({ rows }));
  });

  const NAMED = 5;
  const boxes = () => [...document.querySelectorAll("[data-tick-boxes] input[type=checkbox]")];
  function chosen() {
    const ticked = boxes().filter((box) => box.checked);
    const count = ticked.length;
    for (const place of document.querySelectorAll("[data-chosen]")) place.textContent = String(count);
    for (const place of document.querySelectorAll("[data-chosen-names]")) {
      const names = ticked.slice(0, NAMED).map((box) => box.dataset.name);
      if (count > NAMED) names.push(`and ${count - NAMED} more`);
      place.replaceChildren(...names.map((name) => Object.assign(document.createElement("li"), { textContent: name })));
    }
    const bar = document.getElementById("bulk-bar");
    if (bar) bar.hidden = count === 0;
    const all = document.getElementById("tick-all");
    if (all) {
      all.checked = count > 0 && count === boxes().length;
      all.indeterminate = count > 0 && count < boxes().length;
    }
  }
  function tickAll(value) {
    for (const box of boxes()) box.checked = value;
    chosen();
  }
  let last = null;
  document.addEventListener("click", (event) => {
    if (event.target.id === "tick-none") tickAll(false);
    const only = event.target.closest("[data-tick-only]");
    if (only) {
      // a row's own button, for a dialog that is about what is ticked
      tickAll(false);
      document.getElementById(only.dataset.tickOnly).checked = true;
      chosen();
    }
    if (!event.target.matches?.("[data-tick-boxes] input[type=checkbox]")) return;
    const all = boxes();
    const now = all.indexOf(event.target);
    if (event.shiftKey && last !== null && all[last]) {
      for (const box of all.slice(Math.min(now, last), Math.max(now, last) + 1)) box.checked = event.target.checked;
    }
    last = now;
    chosen();
  });
  document.addEventListener("change", (event) => {
    if (event.target.id === "tick-all") tickAll(event.target.checked);
    else if (event.target.matches("[data-tick-boxes] input[type=checkbox]")) chosen();
  });
  document.addEventListener("htmx:oobAfterSwap", chosen);
  document.addEventListener("htmx:afterSettle", () => {
    for (const done of document.querySelectorAll("[data-untick]")) {
      // what is dealt with is chosen no more: the next key means the row that is marked
      const box = document.getElementById(done.dataset.untick);
      if (box) box.checked = false;
      done.removeAttribute("data-untick");
    }
    chosen();
  });
  document.addEventListener("DOMContentLoaded", chosen);
})();
