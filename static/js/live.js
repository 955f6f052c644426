/* The task page's socket: says hello with the newest event it has, and puts new rows where they disturb nobody.
   Rendering is the server's; htmx swaps what it sends. This file only decides when waiting rows are shown. */
"use strict";

(() => {
  const MAX_ROWS = 300; // while at the top; what is older is one click away
  const live = document.getElementById("live");
  const trace = document.getElementById("trace");
  if (!live || !trace) return;
  const incoming = document.getElementById("trace-incoming");
  const waiting = document.getElementById("trace-new");
  let socket = null;

  const newest = () => Number(document.getElementById("trace-seq")?.dataset.seq || live.dataset.after);
  const openPanel = () => document.querySelector("#panel [data-panel][aria-current]")?.dataset.panel || "";
  // somebody is about to click, has the keyboard in a row, or marks text: nothing moves under their hands
  const inUse = () => {
    const marked = document.getSelection();
    return trace.querySelector(":is(a, button, summary):hover, :focus-visible")
      || (marked && !marked.isCollapsed && trace.contains(marked.anchorNode));
  };
  const atTop = () => trace.getBoundingClientRect().top > 0 && !document.querySelector(".event[aria-current]") && !inUse();

  // ---- hello, on the first connection and after each that was lost
  live.addEventListener("htmx:wsOpen", (event) => {
    socket = event.detail.socketWrapper;
    const questions = document.querySelectorAll("#task-escalations .card-urgent[id^='escalation-']");
    socket.sendImmediately(JSON.stringify({
      after: newest(),
      group: live.dataset.group,
      branch: live.dataset.branch,
      rows: live.dataset.rows === "yes",
      panel: openPanel(),
      escalations: [...questions].map((card) => Number(card.id.slice("escalation-".length))),
    }));
  });
  live.addEventListener("htmx:wsClose", (event) => {
    socket = null;
    const words = {
      4401: "You were signed out. Reload the page to sign in again.",
      4404: "You have no access to this task any more.",
    }[event.detail.event?.code];
    if (words) window.desk.notify(words, "error");
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id !== "panel" || !socket) return;
    socket.send(JSON.stringify({ panel: openPanel() }));
  });

  // ---- the answer to a button may be older than what the socket has already brought
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target?.id !== "task-header" || event.detail.xhr.status >= 400) return;
    const theirs = /id="task-header"[^>]*data-seq="(\d+)"/.exec(event.detail.serverResponse);
    if (theirs && Number(theirs[1]) < Number(event.detail.target.dataset.seq)) event.detail.shouldSwap = false;
  });

  // ---- rows wait while somebody reads further down
  live.addEventListener("htmx:wsAfterMessage", () => {
    if (incoming.childElementCount) atTop() ? showWaiting() : countWaiting();
    const reload = document.querySelector("#trace-behind [data-reload]");
    if (reload && atTop()) reload.click();
    for (const output of document.querySelectorAll("#latest pre")) output.scrollTop = output.scrollHeight;
  });
  function countWaiting() {
    const count = incoming.childElementCount;
    waiting.hidden = count === 0;
    waiting.textContent = count === 1 ? "1 new event" : `${count} new events`;
  }
  function showWaiting() {
    const rows = [...incoming.children].filter((row) => {
      const twin = trace.querySelector(`:scope > #${row.id}`);
      if (twin) row.remove();
      return !twin;
    });
    trace.querySelector(".trace-more:not(#trace-more)")?.remove(); // "nothing happened yet"
    trace.prepend(...rows);
    countWaiting();
    foldOld();
  }
  waiting.addEventListener("click", () => {
    document.querySelector(".event[aria-current]")?.removeAttribute("aria-current");
    showWaiting();
    live.scrollIntoView({ block: "start" });
  });
  const showIfFree = () => { if (incoming.childElementCount && atTop()) showWaiting(); };
  window.addEventListener("scroll", showIfFree, { passive: true });
  trace.addEventListener("pointerout", () => setTimeout(showIfFree, 150));
  trace.addEventListener("focusout", () => setTimeout(showIfFree, 150));
  document.addEventListener("selectionchange", showIfFree);

  // ---- old rows make room; the link to them is the same that the server renders
  function foldOld() {
    const rows = trace.querySelectorAll(":scope > .event");
    if (rows.length <= MAX_ROWS) return;
    for (const row of [...rows].slice(MAX_ROWS)) row.remove();
    document.getElementById("trace-more")?.remove();
    const more = document.getElementById("trace-more-template").content.cloneNode(true);
    const link = more.querySelector("a");
    const last = rows[MAX_ROWS - 1].dataset.seq;
    for (const name of ["href", "hx-get"]) {
      link.setAttribute(name, link.getAttribute(name).replace("before=0", `before=${last}`));
    }
    trace.append(more);
    window.htmx.process(trace.lastElementChild);
  }
  // ---- the list is loaded anew; rows that came by the socket meanwhile stay on top of it
  let newer = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target === trace) newer = [...trace.querySelectorAll(":scope > .event")];
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target !== trace) return;
    const top = Number(trace.querySelector(":scope > .event")?.dataset.seq || 0);
    trace.prepend(...newer.filter((row) => Number(row.dataset.seq) > top));
    newer = [];
    document.getElementById("trace-behind").replaceChildren();
    document.getElementById("trace-behind").hidden = true;
  });

  // ---- the note dialog begins with the section that was chosen
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-note-section]");
    if (!button) return;
    const section = button.dataset.noteSection;
    document.getElementById("note-section").value = section;
    document.getElementById("note-text").value = section ? button.closest(".note").querySelector("pre").textContent : "";
  });
})();
