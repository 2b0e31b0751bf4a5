// Changes: the proposal that waits, the versions that were with what they promised and kept, and the
// log of who changed what.

import { find, keepChildren, make, nameOf, setClass, setText } from "./dom.js";
import { ask } from "./feed.js";
import { age, describeSaving, dropped, moment, number, plural, share } from "./format.js";
import { describeFirst, makeMoves } from "./moves.js";
import { act, onSession, session } from "./session.js";
import { start } from "./shell.js";
import { refill } from "./tables.js";
import { showTiles } from "./tiles.js";
import { averageByVersion, drawVersions, listVersions, showVersions } from "./versions.js";

const MEASURED_S = 9; // what was measured is asked for less often than what changed

let control = null;
let now = 0;
let entries = [];
let measuredAt = 0;
let reported = new Map(); // by version, what receivers threw away while it was in force
let seen = "";
let asking = false;
const most = { versions: 20, log: 20 }; // rows, until somebody asks for more

start((found, document) => {
  control = found;
  now = document.at;
  showTiles(find("tiles"), listTiles());
  showProposal();
  showMode();
  loadChanges();
});
onSession(() => {
  if (!control) return;
  showProposal();
  showMode();
  showLists();
});

function listTiles() {
  const { force, proposal, receivers } = control;
  if (!force) return [["Plan", "none", "no plan is in force yet"]];
  const [predicted, measured] = [dropped(force.predicted), dropped(force.measured)];
  const bound = share(control.tolerance);
  return [
    ["In force", `v${force.version}`, `${force.kind} by ${force.by}, for ${age(control.now - force.at)}`],
    ["Predicted", number(predicted), "thrown away per second"],
    ["Measured", number(measured), measured === null ? "not judged yet" : `thrown away per second; rolled back beyond ${bound} more than predicted`],
    ["Proposal", proposal ? `no. ${proposal.number}` : "none", proposal ? "waits for approval" : `proposals: ${control.mode === "auto" ? "take effect by themselves" : "wait for approval"}`],
    ["Lost in changes", number(sumLost()), "messages, as receivers reported while versions took over", sumLost() ? "bad" : "good"],
    ["Missing now", number(receivers.missing), "messages, of all receivers since they started", receivers.missing ? "bad" : "good"],
  ];
}

const sumLost = () => entries.reduce((sum, entry) => sum + (entry.lost ?? 0), 0);

// --- the proposal ---------------------------------------------------------------------------------

let updateProposal = null; // what it saves may be other than when it was drawn

function showProposal() {
  const { proposal } = control;
  const place = find("proposal");
  const signature = proposal ? `${proposal.number} ${session.can_sign_in} ${session.operator}` : `none ${control.mode}`;
  refill(place, signature, () => (proposal ? [drawProposal(proposal.number)] : [make("p", { class: "empty" }, describeNone())]));
  if (proposal) updateProposal(proposal);
}

const describeNone = () =>
  control.mode === "auto"
    ? "Nothing waits: proposals take effect by themselves."
    : "Nothing waits. When demand has drifted so far that a new plan is worth it, it appears here.";

function drawProposal(no) {
  const [title, text, made] = [make("h3"), make("span"), make("span", { class: "note" })];
  const [moves, moved] = [make("summary"), make("div")];
  const [notices, touched] = [make("summary"), make("ul", { class: "names" })];
  const showMoved = makeMoves(moved, "Flows that would move");
  updateProposal = (proposal) => {
    setText(title, `Proposal ${no} ${describeSaving(proposal)}`);
    setText(text, describeProposal(proposal));
    setText(made, `made ${age(control.now - proposal.at)} ago`);
    setText(moves, `What moves${describeFirst(proposal.moved, proposal.moves)}`);
    showMoved(proposal.moved);
    setText(notices, `Who would notice${describeFirst(proposal.touched, proposal.receivers_touched)}`);
    keepChildren(touched, proposal.touched, (name) => name, drawReceiver);
    notices.parentNode.hidden = proposal.touched.length === 0;
  };
  return make(
    "div",
    { class: "card" },
    title,
    make("p", {}, text, " ", made),
    drawButtons(no),
    make("details", {}, moves, moved),
    make("details", {}, notices, touched),
  );
}

function describeProposal({ before, after, moves, receivers_touched: touched }) {
  const [was, will] = [dropped(before), dropped(after)];
  return `Receivers would throw away ${number(will)} messages per second instead of ${number(was)}: ${number(after.dropped_first)} instead of ${number(before.dropped_first)} at the first filter, ${number(after.dropped_second)} instead of ${number(before.dropped_second)} at the second. ${plural(moves, "flow")} would move; ${plural(touched, "receiver")} would notice.`;
}

const drawReceiver = (name) =>
  make("li", {}, make("a", { href: `/receivers?${new URLSearchParams({ name })}` }, nameOf(name)));

function drawButtons(no) {
  if (!session.can_sign_in) {
    return make("p", { class: "note" }, "These pages are read-only. Start the dashboard with --token-file to approve here.");
  }
  const approve = make("button", { type: "button", class: "main" }, "Approve");
  approve.addEventListener("click", () =>
    act("approve", { number: no }, { title: `Approve proposal ${no}?`, text: `${plural(control.proposal?.moves ?? 0, "flow")} move at once. No message is lost; you can roll back.`, yes: "Approve it" }),
  );
  const reject = make("button", { type: "button" }, "Reject");
  reject.addEventListener("click", () =>
    act("reject", { number: no }, { title: `Reject proposal ${no}?`, text: "The plan in force stays.", yes: "Reject it", why: true }),
  );
  return make("p", { class: "buttons" }, approve, reject);
}

function showMode() {
  const mode = find("mode");
  mode.hidden = !session.can_sign_in;
  if (mode.contains(document.activeElement)) return; // somebody chooses
  for (const choice of mode.querySelectorAll("input")) choice.checked = choice.value === control.mode;
}

for (const choice of document.querySelectorAll("input[name=mode]")) {
  choice.addEventListener("change", async () => {
    const text = choice.value === "auto" ? "New plans take effect without asking; the log says so." : "New plans wait here until an operator approves.";
    await act("mode", { mode: choice.value }, { title: "Change how proposals take effect?", text, yes: "Change it" });
    document.activeElement?.blur();
    showMode();
  });
}

// --- what happened --------------------------------------------------------------------------------

async function loadChanges() {
  const state = `${control.force?.version} ${control.force?.measured !== null} ${control.proposal?.number} ${control.mode} ${Math.floor(now / 10)}`;
  if (asking || state === seen) return;
  asking = true;
  try {
    const isOld = now - measuredAt > MEASURED_S;
    const [changes, history] = await Promise.all([ask("/api/changes"), isOld ? ask("/api/history") : null]);
    entries = changes;
    if (history) [measuredAt, reported] = [now, averageByVersion(history)];
    seen = state;
    showTiles(find("tiles"), listTiles());
    showLists();
    await drawShown();
  } catch (error) {
    setText(find("proof"), `The log is not known: ${error.message}`);
  } finally {
    asking = false;
  }
}

const drawShown = () => drawVersions(listVersions(entries, reported).filter(isShown));

function showLists() {
  const versions = listVersions(entries, reported);
  showVersions(cut("versions", versions.filter(isShown).toReversed()), control, now);
  showProof(versions);
  const log = entries.filter((entry) => showsAll() || !isPlacement(entry));
  find("log-empty").hidden = entries.length > 0;
  find("log-cut").hidden = log.length === entries.length;
  keepChildren(find("log"), cut("log", log), (entry) => entry.number, drawEntry);
}

const showsAll = () => document.querySelector("input[name=shown]:checked").value === "all";
const isPlacement = ({ what, kind }) => what === "in force" && kind === "placed";
const isShown = ({ entry, version }) => showsAll() || !isPlacement(entry) || version === control.force?.version;

// The first rows of a list; its button brings more.
function cut(name, rows) {
  const more = find(`more-${name}`);
  const left = rows.length - most[name];
  more.hidden = left <= 0;
  setText(more, `Show ${number(Math.min(left, 50))} older of ${number(left)}`);
  return rows.slice(0, most[name]);
}

for (const name of Object.keys(most)) {
  find(`more-${name}`).addEventListener("click", () => {
    most[name] += 50;
    showLists();
  });
}

for (const choice of document.querySelectorAll("input[name=shown]")) {
  choice.addEventListener("change", () => {
    if (!control) return; // the first document shows them as chosen
    showLists();
    drawShown();
  });
}

function showProof(versions) {
  const judged = versions.filter((each) => each.lost !== null);
  const lost = sumLost();
  const proof = find("proof");
  setClass(proof, "fine", judged.length > 0 && lost === 0);
  setClass(proof, "wrong", lost > 0);
  setText(
    proof,
    judged.length
      ? `Receivers reported ${plural(lost, "message")} as lost while ${plural(judged.length, "version")} took over.`
      : "Receivers have not reported yet what they lost while a version took over.",
  );
}

function drawEntry(entry) {
  const numbers = [];
  if (entry.moves) numbers.push(`${plural(entry.moves, "flow")} moved`);
  if (entry.predicted) numbers.push(`predicted ${number(dropped(entry.predicted))} thrown away per second`);
  if (entry.measured) numbers.push(`measured ${number(dropped(entry.measured))}`);
  if (entry.lost !== null) numbers.push(`${plural(entry.lost, "message")} lost`);
  const version = entry.version === null ? "" : ` version ${entry.version}`;
  return make(
    "li",
    {},
    make("time", { datetime: new Date(1000 * entry.at).toISOString() }, moment(entry.at, now)),
    make("p", {}, make("b", {}, `${entry.what}${version}`), " by ", nameOf(entry.who), ...(entry.why ? [": ", nameOf(entry.why)] : [])),
    ...(numbers.length ? [make("p", { class: "numbers" }, numbers.join(", "))] : []),
  );
}
