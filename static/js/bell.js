/* The bell in the top bar. What comes while its menu is open waits until it is closed: nothing moves under a pointer. */
"use strict";

(() => {
  const bell = document.getElementById("bell");
  if (!bell) return;
  let waiting = null;

  bell.addEventListener("htmx:oobBeforeSwap", (event) => {
    if (event.detail.target.id !== "bell-list" || !bell.open) return;
    waiting = event.detail.fragment;
    event.preventDefault();
    event.stopPropagation(); // nothing is replaced, so there is nothing to hold on to
  });
  bell.addEventListener("toggle", () => {
    if (bell.open || !waiting) return;
    document.getElementById("bell-list").replaceWith(waiting);
    waiting = null;
  });
})();
