// Draws every chart in the page's own colours, and again when the reader turns to light or dark.
(function () {
  "use strict";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const copy = structuredClone(layout);
    copy.paper_bgcolor = copy.plot_bgcolor = "rgba(0,0,0,0)";
    copy.font = { family: colour("--sans"), size: 13, color: colour("--ink") };
    copy.hoverlabel = {
      bgcolor: colour("--card"), bordercolor: colour("--line"),
      font: { family: colour("--sans"), color: colour("--ink") }, align: "left", namelength: -1,
    };
    for (const key of Object.keys(copy).filter((key) => /^[xy]axis/.test(key))) {
      Object.assign(copy[key], {
        gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--soft"),
        tickfont: { color: colour("--soft") },
      });
    }
    return copy;
  }

  function withGaps(data) {
    const page = getComputedStyle(document.documentElement).getPropertyValue("--page").trim();
    for (const trace of data.filter((trace) => trace.type === "treemap")) {
      trace.marker.line = { width: 1, color: page };
    }
    return data;
  }

  function draw() {
    for (const place of document.querySelectorAll(".chart")) {
      const chart = JSON.parse(document.getElementById(place.id + "-data").textContent);
      Plotly.react(place, withGaps(chart.data), themed(chart.layout), {
        responsive: true, displayModeBar: false,
      });
    }
  }

  draw();
  dark.addEventListener("change", draw);
})();
