// Requests to the server of this page; every text that comes back is shown with textContent only.
const token = new URLSearchParams(location.search).get("token") || "";
const headers = { "X-Nearfar-Token": token };

export const byId = (id) => document.getElementById(id);

export function user() { return byId("user").value.trim(); }

async function send(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Error("The server does not answer. Is nearfar still running? What you labeled before is on the disk.");
  }
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.error || `The server answered ${response.status}.`);
  }
  return response;
}

export async function ask(name, values = {}) {
  const body = JSON.stringify({ user: user(), ...values });
  const options = { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body };
  return (await send(`/api/${name}`, options)).json();
}

export async function column(name, Kind) {
  return new Kind(await (await send(`/api/column/${name}`, { headers })).arrayBuffer());
}

export function element(name, text = "", attributes = {}) {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function showError(error) {
  const box = byId("error"), span = box.querySelector("span"), message = error.message || String(error);
  if (!box.hidden && span.textContent.startsWith(message)) return;  // the same with more: which label was not written
  span.textContent = message;
  box.hidden = false;
}

export function hideError() { byId("error").hidden = true; }

export function tell(sentence) { byId("status").textContent = sentence; }

export function download(name, content) {
  const link = element("a", "", { download: name, href: URL.createObjectURL(new Blob([content])) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const KEYS = [..."123456789abcdefghijklmnopqrstuvwxyz"];

export const isTyping = (event) =>
  event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea");
