// The frame of every page: whether it is live, since when it is not, and what raises an alarm.

import { find, setClass, setText } from "./dom.js";
import { follow } from "./feed.js";
import { age, clock, moment } from "./format.js";
import { startSession } from "./session.js";

// Calls `show(control, document)` with every new state of the control plane. What a page shows that
// does not come from the control plane (`own`) is not old when that is away.
export function start(show, { own = false } = {}) {
  let lostAt = null;
  let latest = null;
  let known = null;

  function judge() {
    const away = latest?.away;
    if (lostAt !== null) {
      frame("away", "no connection", `The dashboard's server does not answer since ${clock(lostAt)}. ${kept()}`);
    } else if (away) {
      const since = `The control plane is away since ${moment(away.since, latest.at)} (${age(latest.at - away.since)})`;
      frame("away", "control is away", `${since}: ${away.says}. ${kept()}`);
    } else if (latest) {
      frame("live", "live", "");
    }
    mark();
  }

  function mark() {
    const isAway = lostAt !== null || Boolean(latest?.away);
    setClass(document.body, "stale", isAway && !(own && lostAt === null));
    setClass(document.body, "unknown", isAway && !own && !latest?.control);
  }

  function kept() {
    if (own && lostAt === null) return "What follows does not come from it.";
    return latest?.control ? "The page shows what was known before." : "Nothing is known yet.";
  }

  follow(
    (document) => {
      lostAt = null;
      latest = document;
      judge();
      if (!document.control) return;
      known = announce(document.control, known);
      describeService(document.control);
      show(document.control, document);
    },
    () => {
      lostAt ??= Date.now() / 1000;
      judge();
    },
  );
  startSession().catch(() => {});
}

function frame(state, pill, text) {
  const connection = find("connection");
  setText(connection, pill);
  connection.className = `pill ${state}`;
  const banner = find("banner");
  setText(banner, text);
  banner.hidden = !text;
}

// Reads out alarms that are new, once.
function announce(control, known) {
  const now = new Map(control.alarms.map((alarm) => [`${alarm.what} ${alarm.who}`, alarm]));
  const fresh = [...now].filter(([key]) => !known?.has(key)).map(([, alarm]) => alarm);
  if (fresh.length) {
    setText(find("announced"), fresh.map((alarm) => `Alarm: ${alarm.what} ${alarm.who}`).join(". "));
  } else if (known?.size && !now.size) {
    setText(find("announced"), "No alarms any more");
  }
  document.title = document.title.replace(/^(\(\d+\) )?/, now.size ? `(${control.alarms_known}) ` : "");
  return now;
}

function describeService(control) {
  const beside = control.service.stand_bys;
  const others = beside ? `${beside} standing by` : "nobody standing by";
  setText(find("served"), `· ${control.prefix} is served by ${control.service.where}, ${others}`);
}
