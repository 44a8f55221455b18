// The view in which texts are labeled: one keystroke a label.
import { KEYS, ask, byId, element, hideError, isTyping, showError, tell } from "./api.js";
import { drawCurve } from "./curve.js";

let current = null;
let queue = [];
let history = [];
let classes = [];
let state = null;
let sending = Promise.resolve();
let fetching = false;
let exhausted = false;
const latest = new Map();  // the version of each text after what was decided here, written or on its way
// Not randomUUID: browsers have it on this machine and under https only.
const session = crypto.getRandomValues(new Uint32Array(4)).join("-");
let changed = () => {};

export function start(onChange) {
  changed = onChange;
  byId("none").onclick = () => decide("none");
  byId("skip").onclick = () => decide("skip");
  byId("undo").onclick = undo;
  byId("train").onclick = () => ask("train").then(changed, showError);
  byId("export").onclick = () => ask("export").then(
    (answer) => tell(`${answer.rows} labeled texts are in ${answer.files.join(" and ")}.`), showError);
  byId("new-class").onsubmit = (event) => { event.preventDefault(); useClass(); };
  byId("class-name").oninput = showClasses;
  byId("class-name").onkeydown = (event) => { if (event.key === "Escape") leaveField(); };
  fill();
}

export function onState(next) {
  state = next;
  const names = next.classes.map((each) => each.name);
  if (JSON.stringify(names) !== JSON.stringify(classes)) classes = names;
  showClasses();
  const parts = [`${next.labeled.toLocaleString("en")} of ${next.texts.toLocaleString("en")} texts labeled`];
  if (next.none) parts.push(`${next.none} fit no class`);
  if (next.skipped) parts.push(`${next.skipped} skipped`);
  byId("progress").textContent = `${parts.join(", ")}.`;
  byId("bar").value = next.texts ? next.labeled / next.texts : 0;
  showAccuracy(next);
  if (!current && !fetching && (next.open || next.skipped) && exhausted) { exhausted = false; fill(); }
}

function showAccuracy({ training, curve }) {
  const last = curve[curve.length - 1];
  let sentence = training.obstacle || `The model is trained on ${training.labels} labels and saved in ${training.folder}.`;
  if (!training.obstacle && !training.labels) sentence = training.active ? "" : "The first model is trained soon.";
  if (last && last.accuracy !== undefined) {
    sentence = `About ${Math.round(100 * last.accuracy)} % on new texts (${Math.round(100 * last.low)} to ` +
      `${Math.round(100 * last.high)} %), by cross-validation of ${last.labels} labels. The model is in ${training.folder}.`;
  }
  if (training.active) sentence = `${sentence} A model is being trained …`.trim();
  byId("accuracy").textContent = training.error || sentence;
  byId("train").disabled = training.active || Boolean(training.obstacle);
  drawCurve(byId("curve"), curve.filter((point) => point.accuracy !== undefined));
}

function matching() {
  const typed = byId("class-name").value.trim().toLowerCase();
  return typed ? classes.filter((name) => name.toLowerCase().includes(typed)) : classes;
}

let drawn = "";

function showClasses() {
  const shown = matching();
  const counts = Object.fromEntries((state?.classes || []).map((each) => [each.name, each.count]));
  const content = JSON.stringify([shown, counts, classes]);
  if (content === drawn) return;
  drawn = content;
  const box = byId("classes");
  box.replaceChildren(...shown.map((name) => {
    const button = element("button", "", { type: "button" });
    const key = KEYS[classes.indexOf(name)];
    if (key) button.append(element("kbd", key), " ");
    button.append(name, " ", element("small", String(counts[name] || 0)));
    button.onclick = () => decide("label", name);
    return button;
  }));
  if (!classes.length) box.append(element("p", "Add the first class below: press / and type its name."));
}

async function useClass() {
  const field = byId("class-name");
  const typed = field.value.trim();
  if (!typed) return leaveField();
  const shown = matching();
  const exact = classes.find((name) => name.toLowerCase() === typed.toLowerCase());
  leaveField();
  if (exact || shown.length === 1) return decide("label", exact || shown[0]);
  try {
    const { name } = await ask("class", { name: typed });
    if (!classes.includes(name)) classes.push(name);
    decide("label", name);
  } catch (error) { showError(error); }
}

function leaveField() {
  byId("class-name").value = "";
  byId("class-name").blur();
  showClasses();
}

async function fill() {
  if (fetching || queue.length > 3) return;
  fetching = true;
  try {
    const having = [...queue, ...(current ? [current] : [])].map((item) => item.row);
    const { rows, guesses } = await ask("next", { session, count: 6, having });
    for (const item of [...queue, ...(current ? [current] : [])]) item.guess = guesses[item.row] ?? item.guess;
    const known = new Set([...queue, ...(current ? [current] : [])].map((item) => item.row));
    const fresh = rows.filter((item) => !known.has(item.row) && item.label === null && item.version >= (latest.get(item.row) ?? 0));
    queue.push(...fresh);
    exhausted = rows.length === 0;
    if (!current && queue.length) current = queue.shift();
    show();
    if (rows.length && !fresh.length && !queue.length) setTimeout(fill, 300);
  } catch (error) {
    showError(error);
    setTimeout(fill, 3000);
  } finally { fetching = false; }
}

function advance() {
  current = queue.shift() || null;
  show();
  fill();
}

function show() {
  const guess = byId("guess");
  const text = byId("text");
  if (!current) {
    text.textContent = exhausted ? "All texts are labeled. Save the files, or look at the map." : "…";
    guess.hidden = true;
    return;
  }
  if (text.textContent !== current.text) { text.textContent = current.text; text.scrollTop = 0; }
  guess.hidden = !current.guess;
  if (current.guess) {
    const [name, chance] = current.guess;
    guess.replaceChildren("Suggestion: ", element("b", name), ` (${Math.round(100 * chance)} %). `,
      element("kbd", "Enter"), " accepts it.");
  }
}

function decide(kind, label = null) {
  if (!current) return;
  hideError();
  const item = current;
  const entry = { item, kind, label, before: { kind: item.kind, label: item.kind === "label" ? item.label : null } };
  history.push(entry);
  latest.set(item.row, item.version + 1);
  showHistory();
  advance();
  sending = sending.then(() => write(entry));
}

async function write(entry) {
  const { item, kind, label } = entry;
  try {
    const change = { row: item.row, version: item.version, kind, label };
    const { conflicts, written } = await ask("decide", { changes: [change] });
    if (conflicts.length) {
      const [other] = conflicts;
      history = history.filter((each) => each !== entry);
      const what = other.label === null ? other.kind : `labeled it ${other.label}`;
      showError(new Error(`${other.user || "Somebody else"} decided on this text before you (${what}); your label was not written.`));
    } else {
      Object.assign(item, { version: written[0].version, kind, label });
      tell(kind === "label" ? `Labeled ${label}.` : kind === "skip" ? "Skipped." : "Fits none of the classes.");
    }
    changed();
  } catch (error) {
    history = history.filter((each) => each !== entry);
    latest.delete(item.row);
    if (current) queue.unshift(current);
    current = item;
    show();
    showError(new Error(`${error.message} This label was not written.`));
  }
  showHistory();
}

function undo() {
  const entry = history.pop();
  if (!entry) return;
  showHistory();
  sending = sending.then(async () => {
    const { item, before } = entry;
    try {
      const { conflicts } = await ask("decide", { changes: [{ row: item.row, version: item.version, ...before }] });
      if (conflicts.length) throw new Error("Somebody else has decided on this text since; nothing was undone.");
      Object.assign(item, { version: item.version + 1, ...before });
      latest.set(item.row, item.version);
      queue = queue.filter((each) => each.row !== item.row);
      if (current && current.row !== item.row) queue.unshift(current);
      current = item;
      show();
      tell("Undone.");
      changed();
    } catch (error) { showError(error); }
  });
}

function showHistory() {
  byId("undo").disabled = history.length === 0;
  byId("recent").replaceChildren(...history.slice(-8).reverse().map(({ item, kind, label }) => {
    const line = element("li");
    line.append(element("b", label ?? (kind === "skip" ? "skipped" : "none")), ` ${item.text.slice(0, 80)}`);
    return line;
  }));
  byId("recent").start = history.length;
}

export function onKey(event) {
  if (isTyping(event)) return;
  const { key } = event;
  const place = KEYS.indexOf(key);
  const onButton = event.target.matches("button");
  if (key === "/" || key === "+") byId("class-name").focus();
  else if (key === "0") decide("none");
  else if (key === " " && !onButton) decide("skip");
  else if (key === "Backspace") undo();
  else if (key === "Enter" && !onButton && current?.guess) decide("label", current.guess[0]);
  else if (place >= 0 && classes[place] !== undefined) decide("label", classes[place]);
  else return;
  event.preventDefault();
}
