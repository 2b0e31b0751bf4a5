// Who acts: signing in with the operator's token, confirming, and asking for a change.

import { ask } from "./feed.js";
import { find, setClass, setText, showName } from "./dom.js";

const SILENCE = "The dashboard's server did not answer, so nobody knows whether it was done; look here again once the page is live.";
const state = { operator: null, csrf: "", can_sign_in: false };
const listeners = [];

export const session = state;

export function onSession(listener) {
  listeners.push(listener);
}

export async function startSession() {
  const account = find("account");
  account.addEventListener("click", () => (state.operator ? signOut() : signIn()));
  for (const button of document.querySelectorAll("dialog [data-close]")) {
    button.addEventListener("click", () => button.closest("dialog").close());
  }
  const token = takeTokenFromAddress();
  take(await ask("/api/session"));
  if (token && !state.operator) await signInWith(token);
}

// Asks for a change; signs in first where nobody is, and says what came of it.
export async function act(name, body, question) {
  if (!state.operator && !(await signIn())) return;
  const answer = question ? await confirm(question) : {};
  if (!answer) return;
  const { ok, status, found } = await post(name, { ...body, ...answer });
  if (status === 401) take({ operator: null, csrf: "", can_sign_in: true });
  say(found.says, !ok);
}

export function say(text, wrong = false) {
  const said = find("said");
  setText(said, text);
  setClass(said, "wrong", wrong);
  said.hidden = false;
  clearTimeout(said.timer);
  said.timer = setTimeout(() => (said.hidden = true), 20000);
}

function take(found) {
  Object.assign(state, found);
  const account = find("account");
  account.hidden = !state.can_sign_in;
  setText(account, state.operator ? `Sign out ${showName(state.operator)}` : "Sign in");
  for (const listener of listeners) listener();
}

// What the server answers; if it does not, `found.says` tells that, too.
async function post(name, body) {
  try {
    const response = await fetch(`/api/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-CSRF-Token": state.csrf },
      body: JSON.stringify(body),
    });
    return { ok: response.ok, status: response.status, found: await response.json() };
  } catch {
    return { ok: false, status: 0, found: { says: SILENCE } };
  }
}

async function signOut() {
  const { ok, found } = await post("sign-out", {});
  if (ok) take(found);
  else say(found.says, true);
}

// The address that the command prints may bring the token, behind #: servers never see that part.
// It does not stay in the address, whatever happens next.
function takeTokenFromAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

async function signInWith(token) {
  const { ok, found } = await post("sign-in", { token, name: "operator" });
  if (ok) take(found);
  else say(found.says, true);
}

function signIn() {
  const dialog = find("sign-in");
  const form = dialog.querySelector("form");
  const error = find("sign-in-error");
  error.hidden = true;
  form.reset();
  form.onsubmit = async (event) => {
    event.preventDefault();
    const { ok, found } = await post("sign-in", {
      token: form.elements.token.value.trim(),
      name: form.elements.name.value,
    });
    if (!ok) {
      setText(error, found.says);
      error.hidden = false;
      return;
    }
    take(found);
    dialog.close();
  };
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(state.operator !== null), { once: true });
    dialog.showModal();
  });
}

// Asks whether to go on; resolves to what was added ({} or {why}), or to null.
function confirm({ title, text, yes, why = false }) {
  const dialog = find("confirm");
  setText(find("confirm-title"), title);
  setText(find("confirm-text"), text);
  setText(find("confirm-yes"), yes);
  find("confirm-reason").hidden = !why;
  find("confirm-why").value = "";
  let answer = null;
  dialog.querySelector("form").onsubmit = () => {
    answer = why ? { why: find("confirm-why").value } : {};
  };
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(answer), { once: true });
    dialog.showModal();
  });
}
