// The versions of the plan: what each promised and saved, as a table and as bars.

import { clear, draw } from "./charts.js";
import { find, make, nameOf, setText } from "./dom.js";
import { dropped, moment, number, plural, share } from "./format.js";
import { describeFirst, makeMoves } from "./moves.js";
import { act, session } from "./session.js";
import { makeTable, refill } from "./tables.js";

// Oldest first: what each version promised, and what receivers reported while it was in force
// (`reported`, by version). A version is judged by receivers whose interest stayed the same; of one
// that is out of the reports, their share of what was predicted for them stands for all.
export function listVersions(entries, reported) {
  const versions = new Map();
  for (const entry of entries.toReversed()) {
    if (entry.version === null) continue;
    const known = versions.get(entry.version) ?? { version: entry.version, judged: null, lost: null };
    if (entry.what === "in force") Object.assign(known, { entry, predicted: dropped(entry.predicted) });
    if (entry.measured && dropped(entry.predicted) > 0) known.judged = dropped(entry.measured) / dropped(entry.predicted);
    if (entry.lost !== null) known.lost = entry.lost;
    versions.set(entry.version, known);
  }
  const found = [...versions.values()].filter((each) => each.entry);
  for (const each of found) Object.assign(each, measure(each, reported.get(each.version)));
  for (const each of found) Object.assign(each, save(each, versions.get(each.version - 1)?.measured ?? reported.get(each.version - 1)));
  return found;
}

function measure({ judged, predicted }, mean) {
  if (mean !== undefined) return { measured: mean, about: "" };
  return judged === null || predicted === null ? { measured: null, about: "" } : { measured: judged * predicted, about: "≈ " };
}

// Means over the seconds of each version of the last minutes; the first two still have the one before.
export function averageByVersion({ version, dropped_first: first, dropped_second: second }) {
  const sums = new Map();
  version.forEach((number, at) => {
    const [seconds, sum] = sums.get(number) ?? [0, 0];
    sums.set(number, [seconds + 1, sum + (seconds < 2 ? 0 : first[at] + second[at])]);
  });
  return new Map([...sums].filter(([, [seconds]]) => seconds >= 5).map(([number, [seconds, sum]]) => [number, sum / (seconds - 2)]));
}

// What a version that moves flows saves against what was measured of the one before. Those that only
// place flows follow what receivers want, and save nothing.
function save({ entry, predicted, measured }, before = null) {
  const was = entry.kind === "placed" ? null : before;
  const less = (value) => (was === null || value === null ? null : was - value);
  return { promised: less(predicted), saved: less(measured) };
}

let tableFor = null;
let fillVersions = null;
let inForce = null;
let kept = new Set(); // versions that can be rolled back to
let now = 0;

export function showVersions(rows, control, at) {
  [inForce, kept, now] = [control.force?.version, new Set(control.kept), at];
  if (tableFor !== session.can_sign_in) {
    tableFor = session.can_sign_in;
    fillVersions = makeTable(find("versions-table"), {
      label: "Versions",
      empty: "No version came into force yet.",
      keyOf: (row) => row.version,
      columns: [...COLUMNS, ...(session.can_sign_in ? [{ title: "go back", brief: true, fill: fillRollBack }] : [])],
    });
  }
  fillVersions(rows);
}

const COLUMNS = [
  { title: "version", fill: fillVersion },
  { title: "since", brief: true, text: ({ entry }) => moment(entry.at, now) },
  { title: "why", fill: fillWhy },
  { title: "flows moved", count: true, text: ({ entry }) => number(entry.moves) },
  { title: "predicted/s", count: true, text: (row) => number(row.predicted) },
  { title: "measured/s", count: true, text: (row) => `${row.about}${number(row.measured)}` },
  { title: "judged", count: true, text: (row) => describeJudged(row.judged) },
  { title: "promised saving/s", count: true, text: (row) => number(row.promised) },
  { title: "saved/s", count: true, text: (row) => number(row.saved) },
  { title: "lost", count: true, text: (row) => number(row.lost) },
];

function describeJudged(judged) {
  if (judged === null) return "–";
  return `${share(Math.abs(judged - 1))} ${judged >= 1 ? "above" : "below"}`;
}

function fillVersion(cell, { version }) {
  const current = version === inForce;
  refill(cell, `${version} ${current}`, () => [`v${version}`, ...(current ? [make("span", { class: "badge" }, "in force")] : [])]);
}

function fillWhy(cell, { entry }) {
  refill(cell, entry.number, () => {
    const kind = entry.kind ? `${entry.kind} by ` : "by ";
    const moved = entry.moved.length ? [drawMoved(entry)] : [];
    return [make("span", { class: "note" }, kind, nameOf(entry.who)), ": ", nameOf(entry.why), ...moved];
  });
}

function drawMoved({ version, moved, moves }) {
  const place = make("div");
  makeMoves(place, `Flows that version ${version} moved`)(moved);
  return make("details", { class: "moved" }, make("summary", {}, `What moved${describeFirst(moved, moves)}`), place);
}

function fillRollBack(cell, { version }) {
  const possible = kept.has(version);
  refill(cell, possible, () => (possible ? [drawRollBack(version)] : []));
}

function drawRollBack(version) {
  const button = make("button", { type: "button", class: "quiet", "aria-label": `Roll back to version ${version}` }, "Roll back");
  button.addEventListener("click", () =>
    act("roll-back", { version }, { title: `Roll back to version ${version}?`, text: "Its placements take effect as a new version. No message is lost.", yes: "Roll back" }),
  );
  return button;
}

export async function drawVersions(versions) {
  const shown = versions.slice(-30);
  if (!shown.length) {
    clear(find("versions"));
    return;
  }
  const x = shown.map((each) => `v${each.version}`);
  const bar = (name, color, y) => ({ type: "bar", name, x, y, marker: { color }, hovertemplate: "%{y:,.4~g}" });
  const layout = {
    bargap: 0.3,
    xaxis: { type: "category", showgrid: false },
    yaxis: { rangemode: "tozero", title: { text: "thrown away/s" } },
  };
  const data = [
    bar("predicted", "session-dropped", shown.map((each) => each.predicted)),
    bar("measured", "flow-dropped", shown.map((each) => each.measured)),
  ];
  setText(find("versions-caption"), describeLast(versions));
  await draw(find("versions"), data, layout, `Thrown away per second under ${plural(shown.length, "version")}; the table below has the numbers`);
}

function describeLast(versions) {
  const judged = versions.findLast((each) => each.saved !== null);
  if (!judged) return "A saving is known when two versions after each other have been measured.";
  const word = (value) => (value >= 0 ? `${number(value)} less` : `${number(-value)} more`);
  return `Version ${judged.version} against the one before: promised ${word(judged.promised)} thrown away per second, measured ${word(judged.saved)}.`;
}
