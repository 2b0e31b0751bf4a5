// Flows that move, with where from and where to, as a table.

import { nameOf } from "./dom.js";
import { number } from "./format.js";
import { makeTable, refill } from "./tables.js";

export const makeMoves = (place, label) =>
  makeTable(place, {
    label,
    empty: "The list of moves is not known.",
    keyOf: (row) => row.flow,
    columns: [
      { title: "flow", fill: (cell, row) => refill(cell, row.flow, () => [nameOf(row.flow)]) },
      { title: "from", text: (row) => describePlace(row.from_group, row.from_session) },
      { title: "to", text: (row) => describePlace(row.to_group, row.to_session) },
      { title: "receivers", count: true, text: (row) => number(row.receivers) },
    ],
  });

const describePlace = (group, session) => (group === null ? "no group" : `group ${group}, session ${session}`);

// What to add to the title of a list that may be cut.
export const describeFirst = (listed, all) => (listed.length < all ? `: the first ${number(listed.length)} of ${number(all)}` : "");
