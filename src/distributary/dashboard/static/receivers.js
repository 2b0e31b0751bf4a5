// Receivers: the worst first, and one of them in detail.

import { clear } from "./charts.js";
import { find, make, nameOf, setText } from "./dom.js";
import { ask } from "./feed.js";
import { age, dropped, number, plural, share, wasted } from "./format.js";
import { start } from "./shell.js";
import { makeTable, refill } from "./tables.js";
import { showTiles } from "./tiles.js";
import { drawTraffic } from "./traffic.js";

const chosen = new URLSearchParams(location.search).get("name");
let asking = false;
let most = 1;

const showReceivers = makeTable(find("receivers"), {
  label: "Receivers",
  empty: "No receiver yet: start one with distributary receive --control URL.",
  keyOf: (row) => row.name,
  columns: [
    { title: "name", fill: fillName },
    { title: "thrown away/s", count: true, wide: true, fill: fillDropped },
    { title: "wanted/s", count: true, text: (row) => number(row.waste.wanted) },
    { title: "at first filter", count: true, text: (row) => number(row.waste.dropped_first) },
    { title: "at second", count: true, text: (row) => number(row.waste.dropped_second) },
    { title: "missing", count: true, text: (row) => number(row.missing) },
    { title: "repairs", count: true, text: (row) => number(row.repairs) },
    { title: "groups", count: true, text: (row) => number(row.groups) },
    { title: "CPU", count: true, text: (row) => share(row.cpu_share) },
  ],
});

start((control) => {
  showTiles(find("tiles"), listTiles(control));
  refresh();
});

async function refresh() {
  if (asking) return;
  asking = true;
  try {
    await Promise.all([listReceivers(), chosen === null ? null : showOne(chosen)]);
  } catch (error) {
    setText(find("found"), `Receivers are not known: ${error.message}`);
  } finally {
    asking = false;
  }
}

function listTiles({ receivers, waste }) {
  const gone = receivers.known - receivers.alive;
  return [
    ["Receivers", number(receivers.known), `${number(receivers.alive)} alive`],
    ["Gone", number(gone), "without a report for some seconds", gone ? "bad" : ""],
    ["Unserved", number(receivers.unserved), "want a flow that no plan carries yet", receivers.unserved ? "bad" : ""],
    ["Thrown away", number(dropped(waste)), wasted(waste) === null ? "they get nothing" : `messages/s, ${share(wasted(waste))} of what they get`],
    ["Missing", number(receivers.missing), `messages in ${plural(receivers.gaps, "gap")}`, receivers.missing ? "bad" : "good"],
    ["Repairs", number(receivers.repairs), "retransmissions since they started"],
  ];
}

async function listReceivers() {
  const found = await ask("/api/receivers", { find: find("name").value, order: find("order").value });
  most = Math.max(...found.rows.map((row) => dropped(row.waste)), 1e-9);
  showReceivers(found.rows);
  const shown = found.rows.length < found.found ? `the first ${number(found.rows.length)} of ` : "";
  setText(find("found"), `${shown}${plural(found.found, "receiver")}${found.found < found.known ? ` of ${number(found.known)}` : ""}`);
}

function fillName(cell, row) {
  refill(cell, [row.name, row.alive, row.unserved.length, row.missing > 0], () => {
    const parts = [make("a", { href: `/receivers?${new URLSearchParams({ name: row.name })}` }, nameOf(row.name))];
    const badge = (text) => parts.push(" ", make("span", { class: "badge wrong" }, text));
    if (!row.alive) badge("gone");
    if (row.unserved.length) badge("unserved");
    if (row.missing) badge("misses");
    return parts;
  });
}

function fillDropped(cell, row) {
  const value = dropped(row.waste);
  cell.className = "measure";
  if (!cell.firstChild) cell.append(make("span", { class: "bar", "aria-hidden": "true" }, make("i")), make("span"));
  cell.firstChild.firstChild.style.setProperty("--share", (value / most).toFixed(3));
  setText(cell.lastChild, number(value));
}

for (const field of ["name", "order"]) find(field).addEventListener("input", refresh);
find("find").addEventListener("submit", (event) => event.preventDefault());

// --- one of them ----------------------------------------------------------------------------------

async function showOne(name) {
  find("one").hidden = false;
  if (!find("one-title").firstChild) find("one-title").append("Receiver ", nameOf(name));
  let view;
  try {
    view = await ask("/api/receiver", { name });
  } catch (error) {
    setText(find("one-where"), error.message);
    return;
  }
  const { status, history } = view;
  setText(find("one-where"), `${status.where}; ${status.alive ? "alive" : "gone: nothing was heard of it lately"}.`);
  showTiles(find("one-tiles"), describe(view), "h3");
  showFacts(view);
  const points = {
    at: history.map((block) => block.at),
    wanted: history.map((block) => block.waste.wanted),
    dropped: history.map((block) => dropped(block.waste)),
  };
  if (!points.at.length) {
    clear(find("one-chart"));
    setText(find("one-caption"), "It has not reported yet.");
    return;
  }
  setText(find("one-caption"), `Its reports of the last ${age(points.at.at(-1) - points.at[0])}.`);
  await drawTraffic(find("one-chart"), points, `Messages per second of ${name}`);
}

function describe({ status, joined }) {
  return [
    ["Wants", number(status.wants), `flows; gets ${number(status.waste.wanted)} messages/s`],
    ["First filter", number(status.waste.dropped_first), "messages/s dropped, of sessions it did not subscribe to"],
    ["Second filter", number(status.waste.dropped_second), "messages/s dropped, of flows it does not want"],
    ["Joined", number(joined.length), "groups"],
    ["Missing", number(status.missing), `messages in ${plural(status.gaps, "gap")}; ${number(status.repairs)} repaired`, status.missing ? "bad" : "good"],
    ["CPU", share(status.cpu_share), "of one core"],
  ];
}

function showFacts({ status, flows, joined }) {
  const facts = [
    ["Groups joined", () => [joined.join(", ") || "none"]],
    ["Flows wanted", () => listFlows(flows, status.wants)],
    ["Unserved", () => (status.unserved.length ? listFlows(status.unserved, status.unserved.length) : ["none: the plan carries all that it wants"])],
  ];
  refill(find("one-facts"), JSON.stringify([joined, flows, status.wants, status.unserved]), () =>
    facts.map(([title, list]) => make("div", {}, make("dt", {}, title), make("dd", {}, ...list()))),
  );
}

// The first flows, each with its path.
function listFlows(flows, all) {
  const shown = flows.slice(0, 60);
  const more = all - shown.length;
  const link = (flow) => make("a", { href: `/plan?${new URLSearchParams({ flow })}` }, nameOf(flow));
  const links = shown.flatMap((flow) => [link(flow), ", "]).slice(0, -1);
  return [...(shown.length ? links : ["none"]), more > 0 ? ` and ${number(more)} more` : ""];
}
