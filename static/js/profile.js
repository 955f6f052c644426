/* The profile form shows only the fields of the chosen provider. Without this script all of them are shown. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const provider = document.getElementById("id_provider");
  const model = document.getElementById("id_model");
  function show() {
    for (const part of document.querySelectorAll("[data-for]")) {
      part.hidden = !part.dataset.for.split(" ").includes(provider.value);
    }
    if (provider.value === "scripted" && !model.value) model.value = "scripted";
  }
  provider.addEventListener("change", show);
  show();
});
