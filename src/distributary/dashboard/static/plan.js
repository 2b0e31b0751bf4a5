// Plan: how full the groups are, what is in them, and the path of one flow.

import { find, keepChildren, make, nameOf, setClass, setText } from "./dom.js";
import { ask } from "./feed.js";
import { number, plural, share } from "./format.js";
import { act, onSession, session } from "./session.js";
import { start } from "./shell.js";
import { makeTable, refill } from "./tables.js";
import { showTiles } from "./tiles.js";

const OLD_S = 5; // rates and members change under a version, too

let control = null;
let plan = null;
let askedAt = 0;
let asking = false;
let chosen = null; // number of a group
let wanted = null; // name of the flow whose path is shown
let path = null;
let drawnPins; // how many flows were pinned when the shown one was drawn
let pinKey = ""; // what the form for pinning was drawn for
const travel = make("div");
const steps = make("div", { "aria-live": "off" }); // its rate changes all the time
const ends = make("div");
travel.append(steps, ends);
const pinning = make("div"); // stays as it is while somebody may be typing into it

const showSessions = makeTable(find("sessions"), {
  label: "Sessions of the group",
  empty: "No session travels in this group.",
  keyOf: (row) => row.session,
  columns: [
    { title: "session", text: (row) => `session ${row.session}` },
    { title: "flows", count: true, text: (row) => number(row.flows) },
    { title: "messages/s", count: true, text: (row) => number(row.rate) },
    { title: "subscribers", count: true, text: (row) => number(row.subscribers) },
    { title: "which flows", wide: true, fill: fillFlows },
  ],
});

start(async (found, document) => {
  control = found;
  if (path && control.pins !== drawnPins) showFlow(path.flow);
  if (!control.force) showTiles(find("tiles"), [["Plan", "none", "no plan is in force yet: receivers and publishers make one"]]);
  else if (plan && (document.away || isFresh())) showTiles(find("tiles"), listTiles());
  else await loadPlan();
});

const isFresh = () => plan.version === control.force.version && Date.now() / 1000 - askedAt < OLD_S;

async function loadPlan() {
  if (asking) return;
  asking = true;
  try {
    [askedAt, plan] = [Date.now() / 1000, await ask("/api/plan")];
    showTiles(find("tiles"), listTiles());
    showGroups();
    if (wanted !== null) showFlow(wanted);
  } catch (error) {
    setText(find("heat-key"), `The plan is not known: ${error.message}`);
  } finally {
    asking = false;
  }
}

function listTiles() {
  const { force } = control;
  const full = [...plan.groups].sort((one, other) => fill(other, "rate") - fill(one, "rate"))[0];
  const large = [...plan.groups].sort((one, other) => other.members - one.members)[0];
  const { pins } = control;
  return [
    ["Version", `v${force.version}`, `${force.kind} by ${force.by}`],
    ["Groups", number(force.groups), `of at most ${number(control.group_limit)}`],
    ["Sessions", number(force.sessions), `of at most ${number(control.session_limit)}`],
    ["Flows", number(force.flows), pins ? `${number(pins)} of them pinned` : "none of them pinned"],
    ["Fullest group", full ? `${full.group}` : "–", full ? describeRate(full) : "no group is in use"],
    ["Largest group", large ? `${large.group}` : "–", large ? describeMembers(large) : "no group is in use"],
  ];
}

const describeRate = (group) =>
  group.most_rate === null
    ? `${number(group.rate)} messages/s, no limit`
    : `${number(group.rate)} of ${number(group.most_rate)} messages/s`;

const describeMembers = (group) =>
  group.most_members === null
    ? `${plural(group.members, "member")}, no limit`
    : `${number(group.members)} of ${plural(group.most_members, "member")}`;

// --- the heat map ---------------------------------------------------------------------------------

const LIMITS = { rate: "most_rate", members: "most_members", flows: null };
const UNITS = { rate: "/s", members: " members", flows: " flows" };

const DENSE = 150; // from so many groups on, their fields have no figures

const shadeBy = () => document.querySelector("input[name=shade]:checked").value;

// How full a group is: against its limit, or against the fullest group without one.
function fill(group, by) {
  const limit = LIMITS[by] && group[LIMITS[by]];
  if (limit) return group[by] / limit;
  return group[by] / Math.max(...plan.groups.map((each) => each[by]), 1e-9);
}

function showGroups() {
  const by = shadeBy();
  keepChildren(find("heat"), plan.groups, (group) => group.group, createField, (field, group) => {
    const full = fill(group, by);
    const limit = LIMITS[by] && group[LIMITS[by]];
    const over = Boolean(limit) && full > 1;
    field.style.setProperty("--share", Math.min(full, 1).toFixed(3));
    setClass(field, "over", over);
    setText(field.children[0], `${group.group}${over ? " !" : ""}`);
    setText(field.children[1], `${number(group[by])}${UNITS[by]}`);
    const state = limit ? `${share(full)} of its limit` : "no limit";
    field.setAttribute("aria-label", `group ${group.group}: ${number(group[by])} ${by === "rate" ? "messages/s" : by}, ${state}`);
    field.setAttribute("aria-pressed", String(group.group === chosen));
    field.title = `${number(group[by])}${UNITS[by]}, ${state}`;
  });
  setClass(find("heat"), "dense", plan.groups.length > DENSE);
  const limited = LIMITS[by] && plan.groups.some((group) => group[LIMITS[by]]);
  setText(find("heat-key"), plan.groups.length ? describeKey(by, limited) : "The plan has no group yet.");
  showGroup();
}

const describeKey = (by, limited) =>
  limited
    ? `Full colour: at the limit of ${by}. Red with "!": above it.`
    : `Groups have no limit of ${by}: full colour is the group with the most.`;

function createField(group) {
  const field = make("button", { type: "button" }, make("b"), make("span"));
  field.addEventListener("click", () => {
    chosen = chosen === group.group ? null : group.group;
    showGroups();
    find("group").scrollIntoView({ block: "nearest" });
  });
  return field;
}

function showGroup() {
  const group = plan.groups.find((each) => each.group === chosen);
  find("group").hidden = !group;
  if (!group) return;
  setText(find("group-title"), `Group ${group.group} at ${group.address}`);
  setText(find("group-text"), `${plural(group.flows, "flow")}; ${describeRate(group)}; ${describeMembers(group)}.`);
  showSessions(group.sessions);
}

for (const choice of document.querySelectorAll("input[name=shade]")) {
  choice.addEventListener("change", () => plan && showGroups());
}

// --- the path of a flow ---------------------------------------------------------------------------

find("find-flow").addEventListener("submit", (event) => {
  event.preventDefault();
  choose(find("flow").value);
});

function choose(flow) {
  history.replaceState(null, "", `/plan?${new URLSearchParams({ flow })}`);
  return showFlow(flow);
}

// The flows of a session; each shows its path without leaving the page.
function fillFlows(cell, { flows, names }) {
  refill(cell, JSON.stringify([flows, names]), () => {
    const more = flows - names.length;
    const links = names.flatMap((flow) => [drawFlow(flow), ", "]).slice(0, -1);
    return [...links, more > 0 ? ` and ${number(more)} more` : ""];
  });
}

function drawFlow(flow) {
  const link = make("a", { href: `/plan?${new URLSearchParams({ flow })}` }, nameOf(flow));
  link.addEventListener("click", async (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a page of its own
    event.preventDefault();
    find("flow").value = flow;
    await choose(flow);
    find("path-title").scrollIntoView({ block: "start" });
  });
  return link;
}

async function showFlow(flow) {
  wanted = flow;
  const place = find("path");
  try {
    const found = await ask("/api/flow", { name: flow });
    if (flow !== wanted) return; // another one was chosen meanwhile
    path = found;
    steps.replaceChildren(drawSteps(path));
    refill(ends, JSON.stringify([path.wanted_by, path.dropped_first_by, path.dropped_second_by]), () => [drawEnds(path)]);
    showPin(path);
    if (travel.parentNode !== place) place.replaceChildren(travel, pinning);
  } catch (error) {
    if (flow !== wanted) return;
    path = null;
    place.replaceChildren(make("p", { class: "notice" }, error.message));
  }
}

const step = (title, name) => make("li", {}, make("span", {}, title), nameOf(name));

function drawSteps(found) {
  const rate = `${number(found.rate)} messages/s`;
  if (found.session === null) {
    return make("ol", { class: "path" }, step(rate, found.flow), step("in no session", "no plan carries it"));
  }
  return make(
    "ol",
    { class: "path", "aria-label": "Path" },
    step(rate, found.flow),
    step("session", String(found.session)),
    step(`group ${found.group}`, found.address),
    step("reaches", plural(found.wanted_by.length + found.dropped_first_by.length + found.dropped_second_by.length, "receiver")),
  );
}

function drawEnds(found) {
  const end = (kind, title, names) =>
    make(
      "div",
      { class: kind },
      make("h3", {}, `${title}: ${number(names.length)}`),
      make("ul", {}, ...names.slice(0, 40).map(drawReceiver)),
      names.length > 40 ? make("p", { class: "note" }, `and ${number(names.length - 40)} more`) : "",
    );
  return make(
    "div",
    { class: "ends" },
    end("gets", "Want it", found.wanted_by),
    end("first", "Throw it away at the first filter", found.dropped_first_by),
    end("second", "Throw it away at the second filter", found.dropped_second_by),
  );
}

const drawReceiver = (name) =>
  make("li", {}, make("a", { href: `/receivers?${new URLSearchParams({ name })}` }, nameOf(name)));

function showPin(found) {
  drawnPins = control?.pins;
  const key = JSON.stringify([found.flow, found.pinned, session.can_sign_in]);
  if (key !== pinKey) pinning.replaceChildren(drawPin(found, found.pinned));
  pinKey = key;
  if (control) pinning.querySelector("input")?.setAttribute("max", String(control.group_limit - 1));
}

function drawPin(found, pinned) {
  if (!session.can_sign_in) return pinned === null ? "" : make("p", {}, `Pinned to group ${pinned}.`);
  const number = make("input", { id: "pin-group", type: "number", min: "0", required: true, value: String(pinned ?? found.group ?? 0) });
  const form = make(
    "form",
    { class: "find" },
    make("label", { for: "pin-group" }, pinned === null ? "Keep it in group" : `Pinned to group ${pinned}; keep it in group`),
    number,
    make("button", { type: "submit" }, "Pin"),
  );
  const pin = async (group, title, text) => {
    await act("pin", { flow: found.flow, group }, { title, text, yes: title });
    await showFlow(found.flow);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    pin(Number(number.value), "Pin", `${found.flow} stays in group ${number.value}, whatever is planned.`);
  });
  if (pinned !== null) {
    const release = make("button", { type: "button" }, "Let it go");
    release.addEventListener("click", () => pin(null, "Let it go", `${found.flow} may be planned into any group again.`));
    form.append(release);
  }
  return form;
}

const given = new URLSearchParams(location.search).get("flow");
if (given) {
  find("flow").value = given;
  showFlow(given);
}
onSession(() => path && showFlow(path.flow));
