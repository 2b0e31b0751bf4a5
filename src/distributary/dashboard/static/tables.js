// Tables that are updated in place. On narrow screens each row becomes a card (see page.css), for
// which each cell carries its column's title; roles keep them tables for screen readers.

import { keepChildren, make, setText } from "./dom.js";

// A column is {title, text(row)} or {title, fill(cell, row)}; `count` aligns it right, `wide` gives
// it a line of its card, `brief` keeps it in one line. The first column names the row.
export function makeTable(place, { label, columns, keyOf, empty }) {
  const head = make("tr", { role: "row" });
  for (const column of columns) {
    head.append(make("th", { role: "columnheader", scope: "col", class: kindOf(column) }, column.title));
  }
  const body = make("tbody", { role: "rowgroup" });
  const table = make("table", { role: "table", "aria-label": label }, make("thead", { role: "rowgroup" }, head), body);
  const nothing = make("p", { class: "empty" }, empty);
  table.hidden = nothing.hidden = true; // until something is known
  place.replaceChildren(table, nothing);

  function createRow() {
    const row = make("tr", { role: "row" });
    columns.forEach((column, at) => {
      const kind = at
        ? { role: "cell", class: kindOf(column), "data-title": column.title }
        : { role: "rowheader", scope: "row" };
      row.append(make(at ? "td" : "th", kind, at ? make("span") : ""));
    });
    return row;
  }

  function updateRow(row, item) {
    columns.forEach((column, at) => {
      const cell = at ? row.children[at].firstChild : row.children[at];
      if (column.fill) column.fill(cell, item);
      else setText(cell, column.text(item));
    });
  }

  return (rows) => {
    table.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0;
    keepChildren(body, rows, keyOf, createRow, updateRow);
  };
}

const kindOf = ({ count, wide, brief }) => [count && "count", wide && "wide", brief && "brief"].filter(Boolean).join(" ") || undefined;

// Fills a cell with new elements only when what it shows has changed.
export function refill(cell, signature, create) {
  const text = String(signature);
  if (cell.shown === text) return;
  cell.shown = text;
  cell.replaceChildren(...create());
}
