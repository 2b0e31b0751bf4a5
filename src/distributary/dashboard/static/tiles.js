// Key figures: a title, a figure, and a line about it.

import { keepChildren, make, setText } from "./dom.js";

// `tiles` are [title, figure, line, mood]; the mood ("good", "bad") colours the figure.
export function showTiles(place, tiles, heading = "h2") {
  if (place.hasAttribute("aria-busy")) place.removeAttribute("aria-busy");
  keepChildren(
    place,
    tiles,
    ([title]) => title,
    ([title]) => make("div", { class: "tile" }, make(heading, {}, title), make("p", { class: "figure" }), make("p")),
    (tile, [, figure, line, mood = ""]) => {
      const [, shown, explained] = tile.children;
      setText(shown, figure);
      shown.className = `figure ${mood}`;
      shown.title = figure.length > 9 ? figure : "";
      setText(explained, line);
    },
  );
}
