// Pipeline: the stream on Spark, its batches, its rows, and what it could not use.

import { clear, draw } from "./charts.js";
import { find, setText } from "./dom.js";
import { ask } from "./feed.js";
import { age, clock, duration, number, plural, share } from "./format.js";
import { start } from "./shell.js";
import { makeTable } from "./tables.js";
import { showTiles } from "./tiles.js";

let shown = null;

const counts = (place, label, title, empty) =>
  makeTable(find(place), {
    label,
    empty,
    keyOf: ([name]) => name,
    columns: [
      { title, text: ([name]) => name },
      { title: "rows", count: true, text: ([, count]) => number(count) },
    ],
  });
const showRows = counts("rows", "Rows read", "log", "No rows were read yet.");
const showQuarantine = counts("quarantine", "Rows set aside", "reason", "Every row could be used.");

start((control, document) => {
  const { stream } = control;
  showTiles(find("tiles"), listTiles(stream, document.at));
  showTrouble(stream);
  showRows(Object.entries(stream.rows));
  showQuarantine(Object.entries(stream.quarantined).sort(([, one], [, other]) => other - one));
  if (shown !== stream.batch) showBatches(stream.batch);
});

const STATES = {
  off: "no stream plans here",
  starting: "Spark is starting",
  running: "under supervision",
  restarting: "it ended and is started again",
  external: "started by somebody else",
};

function listTiles(stream, now) {
  const quarantined = Object.values(stream.quarantined).reduce((sum, count) => sum + count, 0);
  const late = stream.behind_s > 30;
  return [
    ["Stream", stream.state, `${STATES[stream.state]}; ${plural(stream.restarts, "restart")}`, stream.state === "restarting" ? "bad" : ""],
    ["Last batch", stream.batch < 0 ? "–" : number(stream.batch), describeBatch(stream, now)],
    ["Behind", stream.behind_rows ? duration(stream.behind_s) : "0 s", `${number(stream.behind_rows)} rows wait for a batch`, late ? "bad" : ""],
    ["Drift", share(stream.drift), stream.drift === null ? "not known: no flows were moved yet" : "growth of waste since flows were moved"],
    ["Excess", share(stream.excess), "of the work of flooding is spent on unwanted messages"],
    ["Quarantine", number(quarantined), "rows set aside, with reasons below", quarantined ? "bad" : "good"],
  ];
}

function describeBatch({ batch_at: at, batch_seconds: seconds, planning_seconds: planning }, now) {
  if (at === null) return "none yet";
  const took = seconds === null ? "–" : duration(seconds);
  return `${age(now - at)} ago, took ${took}${planning === null ? "" : `, ${duration(planning)} of it planning`}`;
}

function showTrouble(stream) {
  const trouble = find("trouble");
  const texts = [];
  if (stream.refused) texts.push(`No plan keeps the terms: ${stream.refused}.`);
  if (stream.last_error) texts.push(`Last error of the stream: ${stream.last_error}`);
  setText(trouble, texts.join(" "));
  trouble.hidden = !texts.length;
}

async function showBatches(batch) {
  shown = batch;
  const found = await ask("/api/batches").catch(() => []);
  if (!found.length) {
    clear(find("batches"));
    setText(find("batches-caption"), "No batch has ended since somebody began to look.");
    return;
  }
  const x = found.map((each) => new Date(1000 * each.at));
  const data = [
    { type: "bar", name: "seconds", x, y: found.map((each) => each.seconds), marker: { color: "wanted" }, hovertemplate: "%{y:.2f} s" },
  ];
  if (found.some((each) => each.planning !== null)) {
    data.push({ type: "bar", name: "of these, planning", x, y: found.map((each) => each.planning), marker: { color: "accent" }, hovertemplate: "%{y:.2f} s" });
  }
  const layout = {
    barmode: "overlay",
    xaxis: { type: "date", hoverformat: "%H:%M:%S", tickformat: "%H:%M:%S", showgrid: false, nticks: 7 },
    yaxis: { rangemode: "tozero", title: { text: "seconds" } },
  };
  if (found.some((each) => each.drift !== null)) {
    data.push({ type: "scatter", mode: "lines+markers", name: "drift", x, y: found.map((each) => each.drift), yaxis: "y2", line: { color: "flow-dropped", width: 2 }, marker: { color: "flow-dropped", size: 6 }, hovertemplate: "%{y:.1%}" });
    layout.yaxis2 = { rangemode: "tozero", title: { text: "drift" }, tickformat: ".0%", overlaying: "y", side: "right", showgrid: false };
  }
  const last = found.at(-1);
  setText(find("batches-caption"), `${plural(found.length, "batch", "batches")} since ${clock(found[0].at)}, while somebody looked.`);
  await draw(find("batches"), data, layout, `Batch ${last.batch} took ${number(last.seconds)} seconds, ${number(last.planning)} of them to plan; drift ${share(last.drift)}`);
}
