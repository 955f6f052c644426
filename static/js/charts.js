/* Draws the figures that a page names, when they come into view. Plotly is loaded only then; colours are the page's. */
"use strict";

(() => {
  let plotly = null;
  function library(address) {
    plotly ||= new Promise((resolve, reject) => {
      // Plotly bundles a map library that writes its styles into the page unless this id is taken; no map here
      const taken = document.createElement("meta");
      taken.id = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";
      const script = document.createElement("script");
      script.src = address;
      script.onload = () => resolve(window.Plotly);
      script.onerror = reject;
      document.head.append(taken, script);
    });
    return plotly;
  }
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const ROLES = {
    ...{ prompt: "blue", output: "green", cost: "amber", share: "red", queue: "violet" },
    ...{ step: "blue", retry: "red", summary: "violet", claim_check: "green", sandbox: "amber", storage: "grey" },
    ...{ now: "accent", before: "line-strong" },
  };

  function dressed(figure) {
    const axis = { gridcolor: colour("line"), linecolor: colour("line-strong"), zerolinecolor: colour("line-strong") };
    for (const trace of figure.data) {
      const own = colour(ROLES[trace.meta?.role] || "accent");
      trace.marker = { ...trace.marker, color: own };
      if (trace.type === "scatter") trace.line = { ...trace.line, color: own, width: 1.5 };
    }
    const layout = {
      ...figure.layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("ink-2"), size: 11, family: getComputedStyle(document.body).fontFamily },
    };
    for (const name of ["xaxis", "yaxis", "yaxis2"]) if (layout[name]) layout[name] = { ...axis, ...layout[name] };
    return { data: figure.data, layout };
  }

  // "#id": it lies in the page itself, so that it shows the very numbers of the page's table
  async function figureOf(address) {
    if (address.startsWith("#")) return JSON.parse(document.querySelector(address).textContent);
    const response = await fetch(address, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(String(response.status));
    return response.json();
  }

  async function draw(element) {
    element.dataset.drawn = String(Date.now());
    const place = element.querySelector(".chart-plot");
    try {
      const [figure, Plotly] = await Promise.all([
        figureOf(element.dataset.figure),
        library(element.dataset.plotly),
      ]);
      const { data, layout } = dressed(figure);
      if (!data.some((trace) => trace.x.length)) return;
      await Plotly.react(place, data, layout, { displayModeBar: false, responsive: true });
      element.dataset.ready = "";
    } catch {
      element.dataset.ready = "";
      place.textContent = "The chart could not be drawn; the table has the numbers.";
    }
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !entry.target.dataset.drawn) draw(entry.target);
  });
  const look = () => document.querySelectorAll("[data-figure]").forEach((element) => seen.observe(element));
  const redraw = () => document.querySelectorAll("[data-figure][data-drawn]").forEach(draw);

  document.addEventListener("DOMContentLoaded", look);
  document.addEventListener("htmx:afterSwap", look);
  document.addEventListener("htmx:wsAfterMessage", () => {
    for (const element of document.querySelectorAll("[data-figure][data-drawn]")) {
      if (Date.now() - Number(element.dataset.drawn) > 10000) draw(element);
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
})();
