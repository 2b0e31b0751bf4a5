// Draws a network of brokers: a tree from the first broker outwards, level by level.

import { showName } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const [WIDE, HIGH] = [150, 110]; // of the space for a broker
const [BOX, TALL] = [126, 50]; // of its box

export function drawNetwork(place, statuses) {
  const asked = new Map(statuses.map((status) => [status.name, status]));
  const links = new Map();
  for (const status of statuses) {
    for (const [one, other] of status.network) links.set(keyOf(one, other), [one, other]);
  }
  const signature = JSON.stringify([[...links.keys()].sort(), statuses.map(describe)]);
  if (place.shown === signature) return;
  place.shown = signature;
  const spots = placeAll([...asked.keys()], [...links.values()]);
  place.replaceChildren(draw(spots, [...links.values()], asked));
  for (const text of place.querySelectorAll("text.name")) fit(text);
}

const keyOf = (one, other) => [one, other].sort().join("\u0000");
const describe = (status) => [
  status.name, status.subscriptions, status.links.map((link) => [link.neighbour, link.connected, link.waiting]),
];

// Spots by name: brokers of one level beside each other, those next to it below.
function placeAll(asked, links) {
  const ends = new Map();
  const add = (one, other) => ends.set(one, [...(ends.get(one) ?? []), other]);
  for (const [one, other] of links) {
    add(one, other);
    add(other, one);
  }
  for (const name of asked) if (!ends.has(name)) ends.set(name, []);
  const spots = new Map();
  let left = 0;
  for (const root of ends.keys()) {
    if (!spots.has(root)) left += placeTree(root, ends, spots, left);
  }
  return spots;
}

// Leaves side by side, each broker above the middle of those below it; returns the width in leaves.
function placeTree(root, ends, spots, left) {
  let next = left;
  const visit = (name, depth) => {
    spots.set(name, [0, depth]);
    const below = (ends.get(name) ?? []).filter((other) => !spots.has(other));
    const columns = below.filter((other) => !spots.has(other)).map((other) => visit(other, depth + 1));
    const column = columns.length ? (columns[0] + columns.at(-1)) / 2 : next++;
    spots.set(name, [column, depth]);
    return column;
  };
  visit(root, 0);
  return next - left;
}

function draw(spots, links, asked) {
  const columns = Math.max(...[...spots.values()].map(([column]) => column)) + 1;
  const rows = Math.max(...[...spots.values()].map(([, row]) => row)) + 1;
  const spot = (name) => [(spots.get(name)[0] + 0.5) * WIDE, (spots.get(name)[1] + 0.5) * HIGH];
  const label = `Network of ${spots.size} brokers and ${links.length} links; the tables below list them`;
  const width = Math.max(columns, 3) * WIDE; // few brokers are not drawn larger than life
  const svg = element("svg", { viewBox: `${(columns * WIDE - width) / 2} 0 ${width} ${rows * HIGH}`, role: "img", "aria-label": label });
  svg.style.setProperty("--columns", columns);
  for (const [one, other] of links) svg.append(...drawLink(spot(one), spot(other), findLink(asked, one, other)));
  // Boxes cover the ends of links.
  for (const name of spots.keys()) svg.append(...drawBroker(spot(name), name, asked.get(name)));
  return svg;
}

function findLink(asked, one, other) {
  const seen = [[one, other], [other, one]]
    .map(([from, to]) => asked.get(from)?.links.find((link) => link.neighbour === to))
    .filter(Boolean);
  return { down: seen.some((link) => !link.connected), waiting: seen.reduce((sum, link) => sum + link.waiting, 0) };
}

function drawLink([x1, y1], [x2, y2], { down, waiting }) {
  const state = down ? "down" : waiting ? "busy" : "";
  const drawn = [element("line", { x1, y1, x2, y2, class: state })];
  if (down || waiting) {
    const text = down ? "down" : `${waiting.toLocaleString("en-US")} waiting`;
    drawn.push(write(text, (x1 + x2) / 2, (y1 + y2) / 2 + 4, "small"));
  }
  return drawn;
}

function drawBroker([x, y], name, status) {
  const whole = showName(name);
  const shown = whole.length > 14 ? `${whole.slice(0, 13)}…` : whole;
  const box = { x: x - BOX / 2, y: y - TALL / 2, width: BOX, height: TALL, rx: 9 };
  const table = status ? `${status.subscriptions.toLocaleString("en-US")} subscriptions` : "not asked";
  const title = element("title", {});
  title.textContent = whole;
  const drawn = element("rect", { ...box, class: status ? "" : "unasked" });
  drawn.append(title);
  return [drawn, write(shown, x, y - 3, "name"), write(table, x, y + 16, "small")];
}

// Presses a name together that is wider than its box.
function fit(text) {
  if (text.getComputedTextLength() <= BOX - 12) return;
  text.setAttribute("textLength", BOX - 12);
  text.setAttribute("lengthAdjust", "spacingAndGlyphs");
}

function write(text, x, y, kind = "") {
  const written = element("text", { x, y, class: kind });
  written.textContent = text;
  return written;
}

function element(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
