// Topics: services of topics that share channels, with their clusters and what those save.

import { find, keepChildren, make, nameOf, setText } from "./dom.js";
import { ask } from "./feed.js";
import { number, plural, share } from "./format.js";
import { start } from "./shell.js";
import { makeTable, refill } from "./tables.js";
import { showTiles } from "./tiles.js";

const EVERY_MS = 3000;

start(() => {}, { own: true });
refresh();

async function refresh() {
  try {
    if (!document.hidden) show(await ask("/api/topics"));
  } catch {
    // the banner says that nothing answers
  }
  setTimeout(refresh, EVERY_MS);
}

function show(found) {
  find("services").removeAttribute("aria-busy");
  find("none").hidden = found.length > 0;
  keepChildren(find("services"), found, (each) => each.address, create, update);
}

function create({ address }) {
  const service = make(
    "section",
    {},
    make("h2", {}, nameOf(address)),
    make("p", { class: "alert" }),
    make("div", { class: "tiles" }),
    make("div"),
  );
  service.showClusters = makeTable(service.children[3], {
    label: `Clusters of ${address}`,
    empty: "No cluster: no topics with the same readers were found yet.",
    keyOf: (row) => row.name,
    columns: [
      { title: "cluster", fill: (cell, row) => refill(cell, row.name, () => [nameOf(row.name)]) },
      { title: "topics", fill: (cell, row) => refill(cell, row.topics.join(), () => listTopics(row)) },
      { title: "members", count: true, text: (row) => number(row.members) },
      { title: "events per interval", count: true, text: (row) => number(row.flow) },
      { title: "subscriptions saved", count: true, text: (row) => number(row.needed - row.members) },
    ],
  });
  return service;
}

function listTopics({ topics, n_topics: all }) {
  const shown = topics.slice(0, 4).flatMap((topic) => [nameOf(topic), ", "]).slice(0, -1);
  return all > 4 ? [...shown, ` and ${number(all - 4)} more`] : shown;
}

function update(service, { status, says }) {
  const [, alert, tiles, clusters] = service.children;
  setText(alert, says);
  alert.hidden = !says;
  tiles.hidden = clusters.hidden = !status;
  if (!status) return;
  showTiles(tiles, listTiles(status), "h3");
  service.showClusters(status.clusters);
}

function listTiles(status) {
  const overhead = status.overhead / Math.max(status.accepted, 1);
  return [
    ["Saving", share(status.saving), "of the operating cost, by clusters", status.saving > 0 ? "good" : ""],
    ["Topics", number(status.topics), `of ${plural(status.subscribers, "subscriber")}`],
    ["Clusters", number(status.n_clusters), "channels that topics share"],
    ["Subscriptions", number(status.subscriptions), `instead of ${number(status.wanted)} without clusters`],
    ["Events", number(status.accepted), `accepted; ${number(overhead)} messages of overhead each`],
    ["Dropped", number(status.dropped), `${number(status.repairs)} repairs, ${number(status.refused)} refused`, status.dropped ? "bad" : ""],
  ];
}
