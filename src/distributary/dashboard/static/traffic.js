// The chart of wanted and thrown away messages over time, for all receivers or one.

import { draw } from "./charts.js";

const LABEL_PX = 40;
const PAUSE = 4; // times the usual time between points
const LEAST_PAUSE_S = 5;

const line = (name, x, y, color, dash = "solid") => ({
  type: "scatter", mode: "lines", name, x, y,
  line: { color, dash, width: 2 },
  hovertemplate: "%{y:,.4~g}",
});

// `points` has columns; `versions` are [time, number] of plans that took over.
export function drawTraffic(place, given, label, versions = []) {
  const points = breakLines(given);
  const x = points.at.map((at) => new Date(1000 * at));
  const data = [
    line("wanted", x, points.wanted, "wanted"),
    line("thrown away", x, points.dropped, "flow-dropped"),
  ];
  if (points.predicted) data.push(line("predicted", x, points.predicted, "ink", "dot"));
  const layout = {
    xaxis: { type: "date", hoverformat: "%H:%M:%S", tickformat: "%H:%M:%S", showgrid: false, nticks: 7 },
    yaxis: { rangemode: "tozero", title: { text: "messages/s" } },
    shapes: versions.map(([at]) => ({
      type: "line", x0: new Date(1000 * at), x1: new Date(1000 * at), yref: "paper", y0: 0, y1: 1,
      line: { width: 1, dash: "dot" },
    })),
    annotations: thin(versions, given.at, place.clientWidth).map(([at, number]) => ({
      x: new Date(1000 * at), yref: "paper", y: 1, text: `v${number}`, showarrow: false,
      xanchor: "left", yanchor: "top", xshift: 3,
    })),
  };
  return draw(place, data, layout, label);
}

// Puts a point without values where nothing was measured for a while: no line leads across it.
function breakLines(points) {
  const steps = points.at.slice(1).map((at, before) => at - points.at[before]);
  const usual = [...steps].sort((one, other) => one - other)[Math.floor(steps.length / 2)];
  const pauses = steps.map((step, before) => (step > Math.max(LEAST_PAUSE_S, PAUSE * usual) ? before : -1)).filter((at) => at >= 0);
  const broken = Object.fromEntries(Object.entries(points).map(([name, values]) => [name, [...values]]));
  for (const before of pauses.toReversed()) {
    for (const [name, values] of Object.entries(broken)) {
      values.splice(before + 1, 0, name === "at" ? points.at[before] + usual : null);
    }
  }
  return broken;
}

// The versions whose labels have room beside each other, the newest first.
function thin(versions, at, width) {
  const least = ((at.at(-1) - at[0]) * LABEL_PX) / Math.max(width, LABEL_PX);
  const kept = [];
  for (const each of versions.toReversed()) if (!kept.length || kept.at(-1)[0] - each[0] >= least) kept.push(each);
  return kept;
}
