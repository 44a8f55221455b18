// The view in which suspected label errors are kept, changed or dropped.
import { KEYS, ask, byId, element, hideError, isTyping, showError, tell } from "./api.js";

let suspects = [];
let current = null;
let busy = false; // a decision is being written: the next text is not there yet
let last = null; // the text that was decided on last
let classes = [];
let labeled = 0; // classes that have texts
let history = [];
let generation = -1;
let changed = () => {};

const DOUBT = {
  both: "The model's probabilities and the neighbors doubt it",
  probabilities: "The model's cross-validated probabilities doubt it",
  neighbors: "The neighbors doubt it",
};

export function start(onChange) {
  changed = onChange;
  byId("change").onclick = () => current && decide("label", current.suggested);
  byId("keep").onclick = () => current && decide("label", current.label);
  byId("fix-drop").onclick = () => decide("drop");
  byId("fix-undo").onclick = undo;
  byId("fix-export").onclick = () => ask("export").then(
    (answer) => tell(`${answer.rows} texts are in ${answer.files.join(" and ")}; the original is unchanged.`), showError);
}

export async function onState(state, visible) {
  classes = state.classes.map((each) => each.name);
  labeled = state.classes.filter((each) => each.count).length;
  byId("suspect-count").textContent = state.explorer.suspects ? `(${state.explorer.suspects})` : "";
  const version = state.explorer.columns.suspicion ?? -1;
  if (version === generation) return visible && !current && !busy ? show() : undefined;
  generation = version;
  try {
    suspects = (await ask("suspects")).rows.filter((each) => each.row !== current?.row && !(busy && each.row === last));
    if (!current && !busy) await advance();
  } catch (error) { showError(error); }
  return undefined;
}

async function advance() {
  const next = suspects.shift();
  current = null;
  if (next) {
    const { rows } = await ask("rows", { rows: [next.row] });
    current = { ...rows[0], ...next };
  }
  show();
}

function show() {
  byId("fix-undo").disabled = history.length === 0;
  for (const id of ["change", "keep", "fix-drop"]) byId(id).disabled = !current;
  byId("fix-classes").replaceChildren();
  if (!current) {
    byId("fix-text").textContent = generation < 0 ? "Label errors are searched when the texts are embedded." :
      labeled < 2 ? "Label errors are searched among texts of at least two classes. Label some texts first." :
        "No suspected label error is left.";
    byId("fix-count").textContent = byId("fix-why").textContent = "";
    return;
  }
  const left = suspects.length + 1;
  byId("fix-count").textContent = `${left} suspected label ${left === 1 ? "error" : "errors"}. Line ${current.line} of the file:`;
  byId("fix-text").textContent = current.text;
  byId("fix-why").replaceChildren("Its label is ", element("b", current.label), `. ${DOUBT[current.by]}: `,
    `${Math.round(100 * current.share)} % of the nearest labeled texts are `, element("b", current.suggested), ".");
  byId("change").querySelector("span").textContent = `Change to ${current.suggested}`;
  byId("keep").replaceChildren(element("kbd", "Space"), ` Keep ${current.label}`);
  byId("fix-classes").replaceChildren(...classes.slice(0, KEYS.length).map((name, place) => {
    const button = element("button", "", { type: "button" });
    button.append(element("kbd", KEYS[place]), ` ${name}`);
    button.onclick = () => decide("label", name);
    return button;
  }));
}

async function decide(kind, label = null) {
  if (!current) return;
  hideError();
  const item = current;
  busy = true;
  last = item.row;
  current = null;
  try {
    const { conflicts } = await ask("decide", { changes: [{ row: item.row, version: item.version, kind, label, checked: true }] });
    if (conflicts.length) showError(new Error("Somebody else has decided on this text; your decision was not written."));
    else {
      history.push({ ...item, version: item.version + 1 });
      tell(kind === "drop" ? "Dropped." : label === item.label ? "Kept." : `Changed to ${label}.`);
    }
    await advance();
    changed();
  } catch (error) {
    current = item;
    show();
    showError(error);
  } finally { busy = false; }
}

async function undo() {
  const item = busy ? null : history.pop();
  if (!item) return;
  try {
    const before = { kind: item.kind, label: item.kind === "label" ? item.label : null };
    const { conflicts } = await ask("decide", { changes: [{ row: item.row, version: item.version, ...before }] });
    if (conflicts.length) throw new Error("Somebody else has decided on this text since; nothing was undone.");
    if (current) suspects.unshift(current);
    current = { ...item, version: item.version + 1 };
    show();
    tell("Undone.");
    changed();
  } catch (error) { showError(error); }
}

export function onKey(event) {
  if (isTyping(event) || !current && event.key !== "Backspace") return;
  const { key } = event;
  const place = KEYS.indexOf(key);
  const onButton = event.target.matches("button");
  if (key === "Enter" && !onButton) decide("label", current.suggested);
  else if (key === " " && !onButton) decide("label", current.label);
  else if (key === "Delete") decide("drop");
  else if (key === "Backspace") undo();
  else if (place >= 0 && classes[place] !== undefined) decide("label", classes[place]);
  else return;
  event.preventDefault();
}
