// The page: its tabs, the state that is asked again and again, and the keys.
import { ask, byId, hideError, showError, tell } from "./api.js";
import * as fix from "./fix.js";
import * as label from "./label.js";
import * as map from "./map.js";

const VIEWS = { label, map, fix };
let shown = "";
let asking = false;
let lost = false;

function open(name) {
  if (!VIEWS[name]) return;
  shown = name;
  for (const each of Object.keys(VIEWS)) {
    const active = each === name;
    byId(`view-${each}`).hidden = !active;
    byId(`tab-${each}`).setAttribute("aria-selected", String(active));
    byId(`tab-${each}`).tabIndex = active ? 0 : -1;
  }
  if (name === "map") map.resize();
}

async function refresh() {
  if (asking) return;
  asking = true;
  try {
    const state = await ask("state");
    if (lost) { lost = false; hideError(); }
    if (!shown) begin(state);
    if (state.mode === "label") label.onState(state);
    await map.onState(state);
    await fix.onState(state, shown === "fix");
    const { stage } = state.explorer;
    const embedding = state.embedded < state.texts && state.texts > 0;
    const embedded = `${state.embedded.toLocaleString("en")} of ${state.texts.toLocaleString("en")} texts embedded …`;
    if (state.error) showError(new Error(state.error));
    else if (embedding) tell(embedded);
    else if (stage) tell(`${stage[0].toUpperCase()}${stage.slice(1)} …`);
    else if (/…$/.test(byId("status").textContent)) tell("");
    document.body.dataset.ready = String(!stage);
  } catch (error) {
    lost = true;
    showError(error);
  } finally { asking = false; }
}

function begin(state) {
  byId("source").textContent = `· ${state.source}`;
  document.title = `${state.source} – nearfar`;
  byId("tab-label").hidden = state.mode !== "label";
  if (state.mode === "label") label.start(refresh);
  map.start(refresh);
  fix.start(refresh);
  open(state.mode === "label" ? "label" : "map");
}

for (const name of Object.keys(VIEWS)) {
  byId(`tab-${name}`).onclick = () => open(name);
  byId(`tab-${name}`).onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = Object.keys(VIEWS).filter((each) => !byId(`tab-${each}`).hidden);
    const next = names[(names.indexOf(shown) + step + names.length) % names.length];
    open(next);
    byId(`tab-${next}`).focus();
  };
}
byId("error").querySelector("button").onclick = hideError;
byId("user").value = localStorage.getItem("nearfar-user") || "";
byId("user").onchange = () => localStorage.setItem("nearfar-user", byId("user").value);
document.addEventListener("keydown", (event) => {
  if (shown && !event.defaultPrevented && !event.target.matches("[role=tab]")) VIEWS[shown].onKey(event);
});
setInterval(() => { if (!document.hidden) refresh(); }, 1500);
refresh();
