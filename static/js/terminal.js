/* A terminal's page: says hello to its socket, keeps output at its end, and makes the box a command line.
   Rendering is the server's; the box itself is a plain form. */
"use strict";

(() => {
  const commands = document.getElementById("commands");
  if (!commands) return;
  const shown = () => [...commands.querySelectorAll(":scope > .command")];
  const number = (command) => Number(command.id.slice("command-".length));
  const box = () => document.getElementById("terminal-command");

  // ---- hello, on the first connection and after each that was lost
  commands.addEventListener("htmx:wsOpen", (event) => {
    event.detail.socketWrapper.sendImmediately(JSON.stringify({
      after: Math.max(0, ...shown().map(number)),
      open: shown().filter((command) => command.querySelector("[data-live]")).map(number),
    }));
  });
  commands.addEventListener("htmx:wsClose", (event) => {
    const words = {
      4401: "You were signed out. Reload the page to sign in again.",
      4404: "You may not command in this workspace any more.",
    }[event.detail.event?.code];
    if (words) window.desk.notify(words, "error");
  });
  commands.addEventListener("htmx:wsAfterMessage", () => {
    for (const output of commands.querySelectorAll("pre[data-live]")) output.scrollTop = output.scrollHeight;
    const empty = document.getElementById("no-commands");
    if (empty) empty.hidden = shown().length > 0;
  });

  // ---- the box: Enter runs, the arrows walk through what was run before
  let at = -1; // 0 is the newest
  document.addEventListener("keydown", (event) => {
    if (event.target !== box() || event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      at = -1;
      if (box().value.trim()) box().form.requestSubmit();
      return;
    }
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!step || box().value.includes("\n") || (at < 0 && (step < 0 || box().value))) return;
    const texts = [...new Set(shown().map((command) => command.querySelector(".command-text").textContent))];
    at = Math.min(at + step, texts.length - 1);
    box().value = at < 0 ? "" : texts[at] || "";
    event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id === "terminal-box" || event.target.querySelector?.("#terminal-box")) box()?.focus();
  });
})();
