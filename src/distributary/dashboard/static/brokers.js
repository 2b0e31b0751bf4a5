// Brokers: the network as the asked brokers know it, their tables and their queues.

import { find, nameOf } from "./dom.js";
import { ask } from "./feed.js";
import { number, plural } from "./format.js";
import { drawNetwork } from "./network.js";
import { start } from "./shell.js";
import { makeTable, refill } from "./tables.js";
import { showTiles } from "./tiles.js";

const EVERY_MS = 2000;

const showBrokers = makeTable(find("brokers"), {
  label: "Brokers",
  empty: "No broker answers.",
  keyOf: (row) => row.address,
  columns: [
    { title: "broker", fill: (cell, row) => showIn(cell, row.status?.name ?? row.address) },
    { title: "state", text: (row) => (row.status ? `start number ${row.status.incarnation}, ${row.status.policy}` : row.says) },
    { title: "subscriptions", count: true, text: (row) => number(row.status?.subscriptions) },
    { title: "clients", count: true, text: (row) => number(row.status?.clients.length) },
    { title: "events routed", count: true, text: (row) => number(row.status?.routed) },
    { title: "unneeded", count: true, text: (row) => number(row.status?.unneeded) },
    { title: "kept events", count: true, text: (row) => number(row.status?.kept_events) },
    { title: "dropped", count: true, text: (row) => number(row.status?.dropped) },
  ],
});
const showLinks = makeTable(find("links"), {
  label: "Links",
  empty: "The asked brokers have no links.",
  keyOf: (row) => `${row.from} ${row.neighbour}`,
  columns: [
    { title: "link", fill: (cell, row) => showIn(cell, row.from, row.neighbour) },
    { title: "state", text: (row) => (row.connected ? (row.complete ? "up" : "up, catching up") : "down") },
    { title: "waiting", count: true, text: (row) => number(row.waiting) },
    { title: "unfinished", count: true, text: (row) => number(row.unfinished) },
    { title: "sent", count: true, text: (row) => number(row.forwarded) },
    { title: "received", count: true, text: (row) => number(row.received) },
    { title: "subscriptions", count: true, text: (row) => `${number(row.subscriptions_sent)} out, ${number(row.subscriptions_received)} in` },
  ],
});

function showIn(cell, ...names) {
  refill(cell, names.join("\u0000"), () => names.flatMap((name) => [" → ", nameOf(name)]).slice(1));
}

start(() => {}, { own: true });
refresh();

async function refresh() {
  try {
    if (!document.hidden) show(await ask("/api/brokers"));
  } catch {
    // the banner says that nothing answers
  }
  setTimeout(refresh, EVERY_MS);
}

function show(found) {
  find("none").hidden = found.length > 0;
  find("network").hidden = !found.length;
  if (!found.length) return;
  const answering = found.filter((each) => each.status);
  const links = answering.flatMap(({ status }) => status.links.map((link) => ({ ...link, from: status.name })));
  showTiles(find("tiles"), listTiles(found, answering, links));
  showBrokers(found);
  showLinks(links);
  drawNetwork(find("graph"), answering.map((each) => each.status));
}

function listTiles(found, answering, links) {
  const sum = (key, rows) => rows.reduce((total, row) => total + row[key], 0);
  const statuses = answering.map((each) => each.status);
  const names = new Set(statuses.flatMap((status) => [status.name, ...status.network.flat()]));
  const down = links.filter((link) => !link.connected).length;
  return [
    ["Brokers", number(names.size), `${number(answering.length)} of ${number(found.length)} asked answer`, answering.length < found.length ? "bad" : ""],
    ["Links down", number(down), `of ${plural(links.length, "end")} of links`, down ? "bad" : "good"],
    ["Subscriptions", number(sum("subscriptions", statuses)), "in the tables of those asked"],
    ["Waiting", number(sum("waiting", links)), "publications in queues of links"],
    ["Unneeded", number(sum("unneeded", statuses)), "publications that nobody behind wanted"],
    ["Dropped", number(sum("dropped", statuses)), "deliveries", sum("dropped", statuses) ? "bad" : "good"],
  ];
}
