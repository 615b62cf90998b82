// Draws every figure from the JSON block beside it, in the colours of the current scheme.
"use strict";
(function () {
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");

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

  function draw() {
    const style = getComputedStyle(document.documentElement);
    for (const target of document.querySelectorAll("[data-figure]")) {
      const spec = resolve(JSON.parse(document.getElementById(target.dataset.figure).textContent), style);
      if (window.innerWidth < 600) spec.layout.font.size = 11;
      Plotly.react(target, spec.data, spec.layout, { responsive: true, displayModeBar: false });
    }
  }

  draw();
  scheme.addEventListener("change", draw);
})();
