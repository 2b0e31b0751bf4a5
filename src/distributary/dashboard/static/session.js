// Who acts: signing in with the operator's token, confirming, and asking for a change.

import { ask } from "./feed.js";
import { find, setClass, setText, showName } from "./dom.js";

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
  const response = await post(name, { ...body, ...answer });
  if (response.status === 401) take({ operator: null, csrf: "", can_sign_in: true });
  say((await response.json()).says, !response.ok);
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

function post(name, body) {
  return fetch(`/api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": state.csrf },
    body: JSON.stringify(body),
  });
}

async function signOut() {
  const response = await post("sign-out", {});
  if (response.ok) take(await response.json());
}

// The address that the command prints may bring the token, behind #: servers never see that part.
// It does not stay in the address, whatever happens next.
function takeTokenFromAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

async function signInWith(token) {
  const response = await post("sign-in", { token, name: "operator" });
  const found = await response.json();
  if (response.ok) take(found);
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
    const response = await post("sign-in", {
      token: form.elements.token.value.trim(),
      name: form.elements.name.value,
    });
    const found = await response.json();
    if (!response.ok) {
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
