// Now: what receivers get and throw away, and what needs a look.

import { clear } from "./charts.js";
import { find, keepChildren, make, nameOf, setText } from "./dom.js";
import { ask } from "./feed.js";
import { age, clock, describeSaving, dropped, number, plural, share, wasted } from "./format.js";
import { start } from "./shell.js";
import { makeTable, refill } from "./tables.js";
import { showTiles } from "./tiles.js";
import { drawTraffic } from "./traffic.js";

const KEPT_S = 900;
const PAUSE_S = 5; // without a new point: the page was hidden, or something was away
const SETTLES_S = 5; // until then publishers may still be behind
const COLUMNS = ["at", "version", "wanted", "dropped", "predicted"];
let settled = false;
let points = null;
let asked = false;

const showPublishers = makeTable(find("publishers"), {
  label: "Publishers",
  empty: "No publisher yet: start one with distributary publish --control URL.",
  keyOf: (row) => row.name,
  columns: [
    { title: "name", fill: fillName },
    { title: "flows", count: true, text: (row) => (row.flows === null ? "all" : number(row.flows)) },
    { title: "messages/s", count: true, text: (row) => number(row.rate) },
    { title: "not in the plan", count: true, text: (row) => number(row.unplanned) },
    { title: "publishes by", count: true, text: (row) => `version ${row.plan_version}` },
    { title: "where", text: (row) => row.where },
  ],
});

start((control, document) => {
  showTiles(find("tiles"), listTiles(control));
  showAlarms(control, document.at);
  showProposal(control.proposal);
  settled = control.force !== null && control.now - control.force.at > SETTLES_S;
  showPublishers(control.publishers);
  showTraffic(control, document);
});

function listTiles(control) {
  const { force, waste, predicted, receivers } = control;
  const lost = dropped(waste);
  return [
    ["Wanted", number(waste.wanted), "messages per second reach receivers that want them"],
    ["Thrown away", number(lost), `messages per second${describeShare(waste)}`],
    describePrediction(dropped(predicted), lost),
    force
      ? ["Plan", `v${force.version}`, `${force.kind}, in force for ${age(control.now - force.at)}`]
      : ["Plan", "none", "no plan is in force yet"],
    describeMembers(control),
    ["Missing", number(receivers.missing), `messages, in ${plural(receivers.gaps, "gap")}; ${number(receivers.repairs)} repaired`, receivers.missing ? "bad" : "good"],
  ];
}

const describeShare = (waste) =>
  wasted(waste) === null ? "; receivers get nothing" : `, ${share(wasted(waste))} of what receivers get`;

function describePrediction(predicted, lost) {
  if (predicted === null) return ["Predicted", "–", "thrown away per second; no prediction yet"];
  return ["Predicted", number(predicted), `thrown away per second; ${compare(lost, predicted)}`];
}

function compare(lost, predicted) {
  if (!(predicted > 0)) return lost > 0 ? "measured is more" : "as measured";
  const off = lost / predicted - 1;
  return `measured is ${share(Math.abs(off))} ${off >= 0 ? "above" : "below"}`;
}

function describeMembers(control) {
  const { receivers, publishers_alive: publishing, publishers_known: published } = control;
  const gone = receivers.known - receivers.alive + published - publishing;
  const line = `${receivers.alive} of ${plural(receivers.known, "receiver")} and ${publishing} of ${plural(published, "publisher")} alive`;
  return ["Members", number(receivers.alive + publishing), line, gone ? "bad" : ""];
}

function showAlarms(control, now) {
  find("no-alarms").hidden = control.alarms.length > 0;
  keepChildren(
    find("alarms"),
    control.alarms,
    (alarm) => `${alarm.what} ${alarm.who}`,
    () => make("li", {}, make("span"), " ", make("time")),
    (row, alarm) => {
      setText(row.children[0], alarm.says);
      setText(row.children[1], `since ${clock(alarm.since)} (${age(now - alarm.since)})`);
    },
  );
}

function showProposal(proposal) {
  const place = find("waiting-proposal");
  place.hidden = !proposal;
  if (!proposal) return;
  setText(
    place.querySelector("span"),
    `A proposal waits: it ${describeSaving(proposal)} and moves ${plural(proposal.moves, "flow")}.`,
  );
}

function fillName(cell, row) {
  const behind = settled ? row.behind : 0;
  refill(cell, [row.name, row.alive, behind], () => {
    const badges = [];
    if (!row.alive) badges.push(make("span", { class: "badge wrong" }, "gone"));
    else if (behind) badges.push(make("span", { class: "badge" }, `${plural(behind, "version")} behind`));
    return [nameOf(row.name), ...badges];
  });
}

// --- the chart ------------------------------------------------------------------------------------

async function showTraffic(control, document) {
  if (!points || (!document.away && control.now - points.at.at(-1) > PAUSE_S)) {
    if (asked) return;
    asked = true;
    await loadHistory().catch(() => {});
    asked = false;
    if (!points) return;
  }
  if (!document.away) append(control);
  if (!points.at.length) {
    clear(find("traffic"));
    setText(find("traffic-caption"), "Nothing was measured yet.");
    return;
  }
  const last = points.at.length - 1;
  const label = `Messages per second: ${number(points.wanted[last])} wanted, ${number(points.dropped[last])} thrown away, ${number(points.predicted[last])} predicted`;
  setText(find("traffic-caption"), `Dotted lines: versions that took over. Measured every second, the last ${age(points.at[last] - points.at[0])}.`);
  await drawTraffic(find("traffic"), points, label, findVersions());
}

async function loadHistory() {
  const found = await ask("/api/history");
  found.dropped = found.dropped_first.map((first, at) => first + found.dropped_second[at]);
  points = join(points, found);
}

// A service that took over remembers less than this page: what came before stays.
function join(known, found) {
  const since = found.at[0] ?? Infinity;
  const older = known ? known.at.filter((at) => at < since).length : 0;
  return Object.fromEntries(COLUMNS.map((name) => [name, [...(known?.[name].slice(0, older) ?? []), ...found[name]]]));
}

function append({ now, force, waste, predicted }) {
  if (!force || now <= (points.at.at(-1) ?? 0)) return;
  points.at.push(now);
  points.version.push(force.version);
  points.wanted.push(waste.wanted);
  points.dropped.push(dropped(waste));
  points.predicted.push(dropped(predicted));
  while (points.at[0] < now - KEPT_S) {
    for (const name of COLUMNS) points[name].shift();
  }
}

function findVersions() {
  const found = [];
  for (let at = 1; at < points.at.length; at++) {
    if (points.version[at] !== points.version[at - 1]) found.push([points.at[at], points.version[at]]);
  }
  return found.slice(-60);
}
