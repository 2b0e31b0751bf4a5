// Charts by Plotly, which comes from this server and is loaded only by pages that have charts. They
// take the page's colours, again when the reader turns to light or dark.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const narrow = window.matchMedia("(max-width: 640px)");
const drawn = new Map();
let loading = null;

export const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Draws, or brings up to date. `label` says in words what the chart shows.
export async function draw(place, data, layout, label) {
  place.hidden = false;
  drawn.set(place, [data, layout]);
  if (label) place.setAttribute("aria-label", label);
  await load();
  redraw(place);
}

// Takes the place of a chart that has nothing to show.
export function clear(place) {
  place.hidden = true;
}

function load() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("plotly.min.js", import.meta.url);
    script.onload = resolve;
    script.onerror = () => reject(new Error("the charts cannot be loaded"));
    document.head.append(script);
  });
  return loading;
}

function redraw(place) {
  const [data, layout] = drawn.get(place);
  const coloured = data.map((trace) => withColours(trace));
  window.Plotly.react(place, coloured, themed(layout), { responsive: true, displayModeBar: false });
}

for (const media of [dark, narrow]) {
  media.addEventListener("change", () => {
    if (window.Plotly) for (const place of drawn.keys()) redraw(place);
  });
}

// Traces name their colours as the page's style does.
function withColours(trace) {
  const copy = { ...trace };
  if (trace.line) copy.line = { ...trace.line, color: colour(trace.line.color) };
  if (trace.marker) copy.marker = { ...trace.marker, color: colour(trace.marker.color) };
  return copy;
}

function themed(layout) {
  const font = { family: colour("sans"), size: 13, color: colour("ink") };
  const copy = {
    margin: { l: 8, r: 8, t: 10, b: 8 },
    showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font },
    hovermode: "x unified",
    dragmode: false,
    uirevision: "kept",
    ...structuredClone(layout),
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font,
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font, align: "left", namelength: -1 },
  };
  for (const key of Object.keys(copy).filter((key) => /^[xy]axis/.test(key))) {
    Object.assign(copy[key], {
      automargin: true, fixedrange: true, tickangle: 0, gridcolor: colour("line"), zerolinecolor: colour("line"),
      linecolor: colour("soft"), tickfont: { color: colour("soft") },
    });
  }
  for (const [key, axis] of Object.entries(copy).filter(([key]) => /^[xy]axis/.test(key))) {
    if (axis.title) axis.title = narrow.matches ? undefined : { ...axis.title, font: { size: 13, color: colour("soft") } };
    if (narrow.matches && key === "xaxis") axis.nticks = 4;
  }
  for (const shape of copy.shapes ?? []) shape.line = { ...shape.line, color: colour("edge") };
  for (const note of copy.annotations ?? []) note.font = { color: colour("soft"), size: 12 };
  return copy;
}
