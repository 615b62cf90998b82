// Draws every figure from the JSON block beside it, in the colours of the current scheme.
"use strict";
(function () {
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 600px)");

  function resolve(value, style) {
    if (typeof value === "string") {
      const found = /^var\((--[a-z0-9]+)\)$/.exec(value);
      return found ? style.getPropertyValue(found[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolve(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, style)]));
    }
    return value;
  }

  // A figure that says how many pixels its words need gives way to the narrow one, and that one to smaller letters.
  const needs = (spec) => (spec.layout.meta && spec.layout.meta.room) || 0;

  function chosen(told, target) {
    return told.narrow && (narrow.matches || target.clientWidth < needs(told)) ? told.narrow : told;
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const target of document.querySelectorAll("[data-figure]")) {
      const told = JSON.parse(document.getElementById(target.dataset.figure).textContent);
      const spec = resolve(chosen(told, target), style);
      if (narrow.matches) spec.layout.font.size = 11;
      const small = Math.min(1, target.clientWidth / (needs(spec) || 1));
      if (needs(spec)) for (const note of spec.layout.annotations) note.font.size *= small;
      target.style.height = `${spec.layout.height}px`;
      const printing = document.documentElement.classList.contains("printing");
      if (printing) spec.layout.width = target.clientWidth;
      // what is drawn anew does not glide to its place
      (printing ? Plotly.newPlot : Plotly.react)(target, spec.data, spec.layout, { responsive: true, displayModeBar: false });
    }
  }

  // Paper is light and opens no fold: what is closed on the screen is printed all the same, in the light colours.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    opened = [...document.querySelectorAll("details:not([open])")].filter((fold) => !fold.closest(".trace"));
    for (const fold of opened) fold.open = true;
    draw();
    // Bands fade in, and paper does not wait.
    for (const band of document.querySelectorAll(".sankey-link")) band.style.opacity = 1;
  });
  window.addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printing");
    for (const fold of opened) fold.open = false;
    draw();
  });

  draw();
  scheme.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  const needy = [...document.querySelectorAll("[data-figure]")].filter((target) => {
    return needs(JSON.parse(document.getElementById(target.dataset.figure).textContent));
  });
  let widths = String(needy.map((target) => target.clientWidth));
  window.addEventListener("resize", () => {
    const now = String(needy.map((target) => target.clientWidth));
    if (now !== widths) draw();
    widths = now;
  });
})();
