/* What htmx cannot do, for every page: theme, relative times, notices, dialogs, keys. Never talks to the server by itself. */
"use strict";

(() => {
  const notice = () => document.getElementById("notice");

  // ---- theme: the cookie lets the server paint the first frame right
  const THEMES = ["", "light", "dark"];
  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
    const button = document.getElementById("theme-toggle");
    if (button) button.querySelector("[data-theme-name]").textContent = theme || "system";
  }

  // ---- relative times
  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  function relative(seconds) {
    const size = Math.abs(seconds);
    if (size < 5) return "now";
    const [unit, length] = UNITS.find(([, unitLength]) => size >= unitLength) || UNITS[3];
    const text = `${Math.floor(size / length)} ${unit}`;
    return seconds < 0 ? `in ${text}` : `${text} ago`;
  }
  function tick(root) {
    for (const element of (root || document).querySelectorAll("time[data-relative]")) {
      let text = relative((Date.now() - Date.parse(element.dateTime)) / 1000);
      if (element.hasAttribute("data-lasting")) text = text.endsWith(" ago") ? `for ${text.slice(0, -4)}` : "just now";
      if (element.textContent !== text) element.textContent = text;
      if (element.hasAttribute("data-deadline")) {
        element.classList.toggle("overdue", Date.parse(element.dateTime) < Date.now());
      }
    }
  }

  // ---- notices: inside an open dialog when there is one, since all else is inert then
  function noticePlace() {
    const dialog = [...document.querySelectorAll("dialog[open]")].pop();
    if (!dialog) return notice();
    let place = dialog.querySelector(".dialog-notice");
    if (!place) {
      place = document.createElement("div");
      place.className = "dialog-notice";
      place.setAttribute("aria-live", "assertive");
      (dialog.querySelector(".dialog-body") || dialog).prepend(place);
    }
    return place;
  }
  function notify(text, level) {
    const place = noticePlace();
    const template = document.getElementById("notice-template").content.cloneNode(true);
    const item = template.querySelector(".notice");
    item.classList.add(`notice-${level || "info"}`);
    item.querySelector("span").textContent = text;
    place.replaceChildren(template);
  }

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    if (xhr.status < 400) return;
    if (xhr.getResponseHeader("HX-Retarget")) {
      // a refusal that the server has put into words
      event.detail.shouldSwap = true;
      event.detail.isError = false;
      if (xhr.getResponseHeader("HX-Retarget") === "#notice") event.detail.target = noticePlace();
      return;
    }
    if (event.detail.shouldSwap) return;
    const words = {
      403: "You may not do that here. If you were signed out, reload the page and sign in.",
      404: "That does not exist any more, or you may not see it. Reload the page.",
      413: "That is too large.",
    };
    notify(words[xhr.status] || `The server answered with an error (${xhr.status}). Nothing was changed.`, "error");
  });
  document.addEventListener("htmx:sendError", () => notify("The server cannot be reached. Nothing was sent.", "error"));
  document.addEventListener("htmx:timeout", () => notify("The server did not answer in time. Reload to see what happened.", "error"));

  // ---- dialogs
  function show(dialog) {
    if (!dialog || dialog.open) return;
    dialog.querySelector(".dialog-notice")?.replaceChildren();
    dialog.removeAttribute("data-autoshow"); // once: what a person has closed stays closed
    if (!document.querySelector("dialog[open]")) came = document.activeElement;
    dialog.showModal();
  }
  // one dialog after the other: the browser would give the focus back to what has closed, or to a row that was replaced
  let came = null;
  document.addEventListener("close", () => {
    if (document.querySelector("dialog[open]") || !came || document.activeElement !== document.body) return;
    const place = came.isConnected ? came : document.getElementById(came.id);
    (place || document.querySelector("[data-row][aria-current] [data-row-link]"))?.focus({ preventScroll: true });
  }, true);
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-open], [data-close], [data-dismiss], [data-copy], #theme-toggle");
    if (!target) {
      for (const menu of document.querySelectorAll("details.menu[open]")) {
        if (!menu.contains(event.target)) menu.open = false;
      }
      if (event.target instanceof HTMLDialogElement && !event.target.hasAttribute("data-sticky")) event.target.close();
      return;
    }
    if (target.id === "theme-toggle") {
      const now = document.documentElement.dataset.theme || "";
      setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
    } else if (target.dataset.open) {
      show(document.querySelector(target.dataset.open));
    } else if (target.hasAttribute("data-close")) {
      target.closest("dialog")?.close();
    } else if (target.hasAttribute("data-dismiss")) {
      target.closest(".notice")?.remove();
    } else if (target.dataset.copy) {
      navigator.clipboard?.writeText(target.dataset.copy).then(() => notify("Copied.", "success"));
    }
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    tick(event.target.parentElement || document);
    for (const dialog of document.querySelectorAll("dialog[data-autoshow]:not([open])")) show(dialog);
  });
  document.addEventListener("htmx:wsAfterMessage", () => tick());
  document.addEventListener("htmx:afterRequest", (event) => {
    const { elt, xhr, requestConfig } = event.detail;
    if (!xhr.status || xhr.status >= 400 || !requestConfig || requestConfig.verb === "get") return;
    const dialog = elt.closest("dialog");
    if (dialog && !elt.closest("[data-keep-open]")) dialog.close();
  });

  // ---- live replacement must not lose what a person holds: focus, ticks, opened details
  let held = null;
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const old = event.detail.target;
    if (!old || !old.querySelectorAll) return;
    const active = document.activeElement;
    held = {
      focus: active && active.id && old.contains(active) ? active.id : "",
      ticked: [...old.querySelectorAll("input[type=checkbox][id]:checked")].map((box) => box.id),
      opened: [...old.querySelectorAll("details[id][open]")].map((details) => details.id),
      current: old.matches("[data-row][aria-current]") ? old.id : "",
    };
  });
  document.addEventListener("htmx:oobAfterSwap", () => {
    if (!held) return;
    const { focus, ticked, opened, current } = held;
    held = null;
    for (const id of ticked) {
      const box = document.getElementById(id);
      if (box) box.checked = true;
    }
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    if (current) document.getElementById(current)?.setAttribute("aria-current", "true");
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
  });

  // ---- live state of the socket
  function connection(event, text, tone) {
    const place = document.getElementById("connection");
    if (!place || event.target.closest("#bell")) return; // the badge speaks of the page's own socket
    place.querySelector("span").textContent = text;
    place.className = `badge tone-${tone}`;
  }
  document.addEventListener("htmx:wsOpen", (event) => connection(event, "live", "green"));
  document.addEventListener("htmx:wsClose", (event) => {
    const code = event.detail.event && event.detail.event.code;
    connection(event, code === 4403 || code === 4404 ? "no access: reload" : "reconnecting…", "amber");
  });

  // ---- keys
  let leader = 0;
  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  function moveRow(by) {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.hasAttribute("aria-current"));
    const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + by))];
    all[now]?.removeAttribute("aria-current");
    next.setAttribute("aria-current", "true");
    next.scrollIntoView({ block: "nearest" });
    (next.querySelector("[data-row-link]") || next).focus({ preventScroll: true });
  }
  function helpDialog() {
    const dialog = document.getElementById("key-help");
    const here = dialog.querySelector("[data-keys-here]");
    here.replaceChildren();
    const seen = new Set();
    for (const element of document.querySelectorAll("[data-key], [data-row-key]")) {
      const letter = element.dataset.key || element.dataset.rowKey;
      if (seen.has(letter) || element.offsetParent === null) continue;
      seen.add(letter);
      const term = document.createElement("dt");
      const key = document.createElement("kbd");
      key.textContent = letter;
      term.append(key);
      const words = document.createElement("dd");
      words.textContent = element.dataset.keyWords || element.getAttribute("aria-label") || element.textContent.trim();
      here.append(term, words);
    }
    dialog.querySelector("[data-keys-head]").hidden = here.childElementCount === 0;
    show(dialog);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") {
      for (const menu of document.querySelectorAll("details.menu[open]")) {
        if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
        menu.open = false;
      }
      return;
    }
    if (leader && Date.now() - leader < 1500) {
      leader = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    const own = [...document.querySelectorAll("[data-key]")].find(
      (element) => element.dataset.key === event.key && element.offsetParent !== null && !element.disabled,
    );
    if (own) {
      event.preventDefault();
      own.matches("input:not([type=checkbox]), textarea, select") ? own.focus() : own.click();
      return;
    }
    const inRow = document.querySelector(`[data-row][aria-current] [data-row-key="${CSS.escape(event.key)}"]`);
    if (inRow) {
      event.preventDefault();
      inRow.click();
      return;
    }
    switch (event.key) {
      case "g": leader = Date.now(); break;
      case "?": event.preventDefault(); helpDialog(); break;
      case "/": {
        const search = document.querySelector("input[type=search]");
        if (search) { event.preventDefault(); search.focus(); search.select(); }
        break;
      }
      case "j": event.preventDefault(); moveRow(1); break;
      case "k": event.preventDefault(); moveRow(-1); break;
      case "x": document.querySelector("[data-row][aria-current] input[type=checkbox]")?.click(); break;
      default:
    }
  });

  // ---- forms that submit themselves when a filter changes
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-autosubmit]");
    if (form) form.requestSubmit();
  });

  document.addEventListener("DOMContentLoaded", () => {
    tick();
    for (const here of document.querySelectorAll(".topnav [aria-current], .tabs [aria-current]")) {
      // on a narrow screen these rows scroll: where one is stands in sight
      const row = here.parentElement;
      const [inner, outer] = [here.getBoundingClientRect(), row.getBoundingClientRect()];
      if (inner.right > outer.right) row.scrollLeft += inner.right - outer.right;
    }
    for (const dialog of document.querySelectorAll("dialog[data-autoshow]")) show(dialog);
  });
  setInterval(() => { if (!document.hidden) tick(); }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });

  window.desk = { notify, show };
})();
