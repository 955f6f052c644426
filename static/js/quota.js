/* The quota pages' socket: says whether the page is looked at (one in the background is sent nothing), and keeps a part
   still while somebody is about to click in it. Rendering is the server's. */
"use strict";

(() => {
  const live = document.querySelector("[data-quota-live]");
  if (!live) return;
  let socket = null;
  let missed = false;
  let scrolled = null;
  const tell = (words) => socket?.send(JSON.stringify(words));

  live.addEventListener("htmx:wsOpen", (event) => {
    socket = event.detail.socketWrapper;
    const pools = [...live.querySelectorAll("[data-pool]")].map((card) => Number(card.dataset.pool));
    socket.sendImmediately(JSON.stringify({ rows: pools, visible: !document.hidden }));
  });
  live.addEventListener("htmx:wsClose", () => { socket = null; });
  document.addEventListener("visibilitychange", () => tell({ visible: !document.hidden }));

  // the pointer is on a link, the keyboard is inside, or text is marked
  const inUse = (part) => {
    const marked = document.getSelection();
    return part.querySelector(":is(a, button, summary):hover, :focus-visible")
      || (marked && !marked.isCollapsed && part.contains(marked.anchorNode));
  };
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const part = event.detail.target;
    if (!part?.matches?.("[data-holds]")) return;
    if (inUse(part)) {
      event.detail.shouldSwap = false;
      missed = true;
    }
    scrolled = { id: part.id, top: part.scrollTop };
  });
  document.addEventListener("htmx:oobAfterSwap", () => {
    if (scrolled) document.getElementById(scrolled.id)?.scrollTo(0, scrolled.top);
    scrolled = null;
  });
  const free = () => {
    if (!missed || [...document.querySelectorAll("[data-holds]")].some(inUse)) return;
    missed = false;
    tell({ again: true });
  };
  for (const what of ["pointerout", "focusout", "selectionchange"]) {
    document.addEventListener(what, () => { if (missed) setTimeout(free, 150); });
  }
})();
