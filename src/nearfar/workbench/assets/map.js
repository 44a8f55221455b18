// The map: texts as points on a canvas, their selection, the table beside it and the confusion matrix.
import { ask, byId, column, download, element, isTyping, showError, tell } from "./api.js";
import * as filters from "./filters.js";
import { draw, inside } from "./points.js";

const NOTHING = 65535;
const PAGE = 50;
const COLORS = ["#4477cc", "#dd7722", "#2a9d5c", "#cc4455", "#8855bb", "#8c6d46", "#d36fb0", "#7a8794", "#a3a31f", "#2aa7bd",
  "#5b8f00", "#b8860b", "#6a5acd", "#ff6f61", "#008b8b", "#9a3b3b"];
const GREY = "#98a1ac";
const SCALE = ["#3b528b", "#2c728e", "#21918c", "#27ad81", "#5ec962", "#aadc32", "#fde725"];
const KINDS = { place: Float32Array, place_before: Float32Array, prediction: Uint16Array, confidence: Float32Array,
  cluster: Uint16Array, suspicion: Float32Array, duplicate: Uint16Array };

const data = {};
const versions = {};
const texts = new Map();
let count = 0;
let state = null;
let view = { scale: 1, x: 0, y: 0 };
let chosen = null; // what was selected, of which the filters show some; null: nothing
let selection = new Int32Array(0);
let marked = null;
let page = 0;
let hidden = new Set();
let before = false;
let lasso = false;
let path = null;
let drag = null;
let pending = false;
let colorKey = "";
let changed = () => {};

const canvas = byId("map");

export function start(onChange) {
  changed = onChange;
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("keydown", onCanvasKey);
  new ResizeObserver(resize).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recolor());
  byId("color").onchange = () => { hidden = new Set(); recolor(); };
  byId("tools").onsubmit = (event) => { event.preventDefault(); search(); };
  byId("lasso").onclick = () => setLasso(!lasso);
  byId("before").onclick = () => { before = !before; byId("before").setAttribute("aria-pressed", String(before)); repaint(); };
  byId("fit").onclick = () => { view = { scale: 1, x: 0, y: 0 }; repaint(); };
  byId("duplicates").onclick = () => select(rowsWhere((row) => data.duplicate && data.duplicate[row] !== NOTHING, "duplicate"));
  byId("clear").onclick = clear;
  filters.start(showSelection);
  byId("apply").onclick = () => decideAll("label", byId("selection-class").value);
  byId("drop").onclick = () => decideAll("drop", null);
  byId("csv").onclick = () => save("csv");
  byId("jsonl").onclick = () => save("jsonl");
  byId("files").onclick = () => ask("files").then((answer) => tell(`Written: ${answer.files.join(", ")}.`), showError);
  byId("previous").onclick = () => turn(-1);
  byId("following").onclick = () => turn(1);
}

export async function onState(next) {
  state = next;
  count = next.texts;
  const wanted = { ...next.explorer.columns };
  try {
    for (const [name, Kind] of Object.entries(KINDS)) {
      if (wanted[name] !== undefined && versions[name] !== wanted[name]) {
        data[name] = await column(name, Kind);
        versions[name] = wanted[name];
        colorKey = "";
      }
    }
    if (versions.label !== next.revision) {
      data.label = await column("label", Uint16Array);
      versions.label = next.revision;
      texts.clear();
      colorKey = "";
      if (filterTest()) showSelection();
      else showTable();
    }
  } catch (error) { showError(error); }
  byId("before").hidden = !data.place_before;
  byId("duplicates").disabled = !data.duplicate;
  showChoices();
  recolor();
}

function showChoices() {
  const choices = [];
  if (state.labeled) choices.push(["label", "label"]);
  if (data.prediction) choices.push(["prediction", "prediction"], ["confidence", "confidence"]);
  if (data.prediction && state.labeled) choices.push(["error", "error"]);
  if (data.cluster) choices.push(["cluster", "cluster"]);
  if (state.explorer.suspects) choices.push(["suspicion", "suspected label error"]);
  const select_ = byId("color");
  const key = JSON.stringify(choices);
  if (select_.dataset.key !== key) {
    const color = select_.value;
    select_.replaceChildren(...choices.map(([value, text]) => element("option", text, { value })));
    if (choices.some(([value]) => value === color)) select_.value = color;
    select_.dataset.key = key;
  }
  const names = state.classes.map((each) => each.name);
  const classes = byId("selection-class");
  if (classes.dataset.key !== JSON.stringify(names)) {
    classes.replaceChildren(...names.map((name) => element("option", name, { value: name })));
    classes.dataset.key = JSON.stringify(names);
    classes.hidden = !names.length;
  }
  filters.showChoices(names, data.prediction ? state.explorer.predicts : []);
}

const filterTest = () => filters.test(data, state.classes.map((each) => each.name), state.explorer.predicts);

// The category of each text by the chosen color, with names: numbers below NOTHING, or NOTHING.
let groups = { of: null, names: [], colors: [] };

function recolor() {
  if (!state) return;
  const by = byId("color").value;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const key = [by, dark, ...Object.values(versions)].join(" ");
  if (key === colorKey) return;
  colorKey = key;
  const names = state.classes.map((each) => each.name);
  const predicts = state.explorer.predicts;
  const shade = (index) => COLORS[index % COLORS.length];
  const bins = (values, low, high, text) => ({
    of: Uint16Array.from(values, (value) => Math.max(0, Math.min(6, Math.floor(7 * (value - low) / (high - low))))),
    names: SCALE.map((_, bin) => text(low + (high - low) * bin / 7, low + (high - low) * (bin + 1) / 7)), colors: SCALE,
  });
  const percent = (low, high) => `${Math.round(100 * low)} to ${Math.round(100 * high)} %`;
  if (by === "label") groups = { of: data.label, names, colors: names.map((_, index) => shade(index)) };
  else if (by === "prediction") {
    const order = predicts.map((name) => names.indexOf(name)).map((place, index) => (place < 0 ? names.length + index : place));
    groups = { of: data.prediction, names: predicts, colors: order.map(shade) };
  } else if (by === "confidence") groups = bins(data.confidence, 0, 1, percent);
  else if (by === "suspicion") groups = { of: Uint16Array.from(data.suspicion, (value) => (value > 0 ? 1 : 0)),
    names: ["not suspected", "suspected"], colors: [GREY, "#cc4455"] };
  else if (by === "error") {
    const of = Uint16Array.from(data.label, (label, row) =>
      (label === NOTHING ? NOTHING : Number(names[label] !== predicts[data.prediction[row]])));
    groups = { of, names: ["correct", "wrong"], colors: [GREY, "#cc4455"] };
  } else if (by === "cluster" && data.cluster) {
    const most = data.cluster.reduce((high, value) => Math.max(high, value), 0);
    groups = { of: data.cluster, names: Array.from({ length: most + 1 }, (_, index) => `cluster ${index + 1}`),
      colors: Array.from({ length: most + 1 }, (_, index) => shade(index)) };
  } else groups = { of: null, names: [], colors: [] };
  showLegend();
  showConfusion();
  repaint();
}

function showLegend() {
  const counts = new Map();
  if (groups.of) for (const group of groups.of) counts.set(group, (counts.get(group) || 0) + 1);
  const entries = [...groups.names.entries()].filter(([group]) => counts.get(group));
  if (counts.get(NOTHING)) entries.push([NOTHING, "none"]);
  byId("legend").replaceChildren(...entries.map(([group, name]) => {
    const button = element("button", "", { type: "button", "aria-pressed": String(!hidden.has(group)) });
    const dot = element("canvas", "", { width: 8, height: 8, "aria-hidden": "true" });
    const context = dot.getContext("2d");
    context.fillStyle = group === NOTHING ? GREY : groups.colors[group];
    context.fillRect(0, 0, 8, 8);
    button.append(dot, ` ${name} ${counts.get(group).toLocaleString("en")}`);
    button.onclick = () => {
      if (hidden.has(group)) hidden.delete(group); else hidden.add(group);
      button.setAttribute("aria-pressed", String(!hidden.has(group)));
      repaint();
    };
    return button;
  }));
}

const isHidden = (row) => groups.of !== null && hidden.has(groups.of[row]);

function places() { return before && data.place_before ? data.place_before : data.place; }

export function resize() {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const { clientWidth, clientHeight } = canvas;
  if (!clientWidth) return;
  if (canvas.width !== Math.round(clientWidth * ratio) || canvas.height !== Math.round(clientHeight * ratio)) {
    canvas.width = Math.round(clientWidth * ratio);
    canvas.height = Math.round(clientHeight * ratio);
  }
  repaint();
}

export const frames = { count: 0, milliseconds: 0 };
globalThis.nearfarFrames = frames;

function repaint() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    if (!canvas.clientWidth) return;
    const began = performance.now();
    const ringed = selection.length ? new Set(selection) : null;
    draw(canvas, places(), { view, groups, hidden, nothing: NOTHING, grey: GREY, chosen: ringed, marked, path });
    frames.count += 1;
    frames.milliseconds += performance.now() - began;
    canvas.dataset.points = String(places() ? places().length / 2 : 0);
    canvas.setAttribute("aria-label", `Map of ${count.toLocaleString("en")} texts, ${selection.length} selected`);
  });
}

// Between the map's coordinates, from -1 to 1, and pixels of the canvas.
function screen(row) {
  const side = Math.min(canvas.clientWidth, canvas.clientHeight) * 0.47 * view.scale;
  const where = places();
  return [canvas.clientWidth / 2 + (where[2 * row] + view.x) * side, canvas.clientHeight / 2 - (where[2 * row + 1] + view.y) * side];
}

function at(x, y, reach = 9) {
  if (!places()) return null;
  let best = null;
  let least = reach * reach;
  for (let row = 0; row < count; row += 1) {
    if (isHidden(row)) continue;
    const [left, top] = screen(row);
    const away = (left - x) ** 2 + (top - y) ** 2;
    if (away < least) { least = away; best = row; }
  }
  return best;
}

const point = (event) => [event.offsetX, event.offsetY];

function onDown(event) {
  canvas.setPointerCapture(event.pointerId);
  byId("tip").hidden = true;
  if (lasso || event.shiftKey) path = [point(event)];
  else drag = { from: point(event), view: { ...view }, moved: false };
}

function onMove(event) {
  if (path) { path.push(point(event)); repaint(); return; }
  if (drag) {
    const [x, y] = point(event);
    const side = Math.min(canvas.clientWidth, canvas.clientHeight) * 0.47 * view.scale;
    view.x = drag.view.x + (x - drag.from[0]) / side;
    view.y = drag.view.y - (y - drag.from[1]) / side;
    drag.moved ||= Math.hypot(x - drag.from[0], y - drag.from[1]) > 3;
    repaint();
    return;
  }
  hover(...point(event));
}

function onUp(event) {
  if (path) {
    const polygon = path;
    path = null;
    const found = [];
    if (polygon.length > 2 && places()) {
      for (let row = 0; row < count; row += 1) if (!isHidden(row) && inside(polygon, ...screen(row))) found.push(row);
    }
    select(found);
  } else if (drag && !drag.moved) {
    const row = at(...point(event));
    if (row !== null) select([row]);
  }
  drag = null;
}

let hovering = 0;

async function hover(x, y) {
  const ticket = hovering += 1;
  const row = at(x, y);
  const tip = byId("tip");
  if (row === null) { tip.hidden = true; return; }
  await new Promise((resolve) => { setTimeout(resolve, 40); });
  if (ticket !== hovering) return;
  try {
    const [item] = await fetchRows([row]);
    if (ticket !== hovering || !item) return;
    tip.textContent = `${item.label ? `${item.label}: ` : ""}${item.text.slice(0, 300)}`;
    tip.style.left = `${Math.max(0, Math.min(x + 12, canvas.clientWidth - 240))}px`;
    tip.style.top = `${y + 14}px`;
    tip.hidden = false;
  } catch (error) { showError(error); }
}

function onWheel(event) {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY / 400), ...point(event));
}

function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const old = Math.min(canvas.clientWidth, canvas.clientHeight) * 0.47 * view.scale;
  view.scale = Math.max(0.5, Math.min(200, view.scale * factor));
  const side = Math.min(canvas.clientWidth, canvas.clientHeight) * 0.47 * view.scale;
  view.x += (x - canvas.clientWidth / 2) * (1 / side - 1 / old);
  view.y -= (y - canvas.clientHeight / 2) * (1 / side - 1 / old);
  repaint();
}

function onCanvasKey(event) {
  const step = 0.15 / view.scale;
  const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  if (moves[event.key]) { view.x += moves[event.key][0]; view.y += moves[event.key][1]; repaint(); }
  else if (event.key === "+" || event.key === "=") zoom(1.3);
  else if (event.key === "-") zoom(1 / 1.3);
  else return;
  event.preventDefault();
}

function setLasso(on) {
  lasso = on;
  byId("lasso").setAttribute("aria-pressed", String(on));
  canvas.classList.toggle("lasso", on);
}

export function onKey(event) {
  if (isTyping(event)) return;
  if (event.key === "l") setLasso(!lasso);
  else if (event.key === "/") { byId("query").focus(); event.preventDefault(); }
  else if (event.key === "Escape") clear();
}

function rowsWhere(test, sortBy) {
  const rows = [];
  for (let row = 0; row < count; row += 1) if (test(row)) rows.push(row);
  if (sortBy) rows.sort((one, other) => data[sortBy][one] - data[sortBy][other] || one - other);
  return rows;
}

function select(rows) {
  chosen = rows;
  showSelection();
}

function clear() {
  filters.reset();
  chosen = null;
  showSelection();
}

// The texts that were selected and pass the filters; with filters alone, of all texts that are not hidden.
function showSelection() {
  const test = filterTest();
  const rows = chosen ?? (test ? rowsWhere((row) => !isHidden(row)) : []);
  selection = Int32Array.from(test ? rows.filter(test) : rows);
  marked = null;
  page = 0;
  const number = selection.length;
  byId("selected").textContent = number ? `${number.toLocaleString("en")} ${number === 1 ? "text" : "texts"} selected` : "No texts selected";
  for (const id of ["apply", "drop", "csv", "jsonl"]) byId(id).disabled = !number;
  byId("clear").disabled = chosen === null && !test;
  showTable();
  repaint();
}

async function search(values = {}) {
  try {
    const query = byId("query").value;
    const { rows } = await ask("search", { query, by: byId("by").value, ...values });
    select(rows.filter((row) => !isHidden(row)));
    if (!rows.length) tell(`No text contains ${JSON.stringify(query)}.`);
  } catch (error) { showError(error); }
}

async function fetchRows(rows) {
  const missing = rows.filter((row) => !texts.has(row));
  for (let first = 0; first < missing.length; first += 500) {
    const answer = await ask("rows", { rows: missing.slice(first, first + 500) });
    for (const item of answer.rows) texts.set(item.row, item);
  }
  const found = rows.map((row) => texts.get(row));
  if (texts.size > 5000) texts.clear();
  return found;
}

let table = 0;

async function showTable() {
  const ticket = table += 1;
  const rows = [...selection.slice(page * PAGE, (page + 1) * PAGE)];
  const pages = Math.ceil(selection.length / PAGE);
  byId("page").textContent = pages > 1 ? `${page + 1} of ${pages.toLocaleString("en")}` : "";
  byId("previous").disabled = page === 0;
  byId("following").disabled = page + 1 >= pages;
  let items = [];
  try { items = rows.length ? await fetchRows(rows) : []; } catch (error) { showError(error); }
  if (ticket !== table) return;
  byId("table").replaceChildren(...items.filter(Boolean).map((item) => {
    const line = element("tr");
    const similar = element("button", "like this", { type: "button" });
    similar.onclick = () => search({ row: item.row });
    const last = element("td");
    last.append(similar);
    const wrong = item.label && item.prediction && item.prediction !== item.label;
    const chance = item.confidence === undefined ? "" : ` ${Math.round(100 * item.confidence)} %`;
    const about = item.kind === "drop" ? "dropped" : item.label ?? (item.kind === "none" ? "none" : "");
    line.append(element("td", item.text.slice(0, 600)), element("td", about),
      element("td", item.prediction ? item.prediction + chance : "", wrong ? { class: "wrong" } : {}), last);
    line.onmouseenter = () => { marked = item.row; repaint(); };
    line.onmouseleave = () => { marked = null; repaint(); };
    return line;
  }));
}

function turn(step) { page += step; showTable(); }

async function decideAll(kind, label) {
  const rows = [...selection];
  if (rows.length > 1 && !confirm(`${kind === "drop" ? "Drop" : `Label as ${label}`}: ${rows.length.toLocaleString("en")} texts?`)) return;
  try {
    const items = await fetchRows(rows);
    const changes = items.filter(Boolean).map((item) => ({ row: item.row, version: item.version, kind, label }));
    const { conflicts } = await ask("decide", { changes });
    const done = changes.length - conflicts.length;
    tell(`${done.toLocaleString("en")} ${done === 1 ? "text" : "texts"} ${kind === "drop" ? "dropped" : `labeled ${label}`}.`);
    if (conflicts.length) showError(new Error(`${conflicts.length} texts were decided on by somebody else meanwhile and are unchanged.`));
    texts.clear();
    await changed();
  } catch (error) { showError(error); }
}

const quote = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;

async function save(kind) {
  try {
    const items = [];
    for (let first = 0; first < selection.length; first += 2000) {
      items.push(...(await fetchRows([...selection.slice(first, first + 2000)])).filter(Boolean));
    }
    const fields = ["line", "text", "label", "prediction", "confidence", "cluster"];
    const content = kind === "jsonl"
      ? items.map((item) => `${JSON.stringify(Object.fromEntries(fields.map((field) => [field, item[field]])))}\n`).join("")
      : [fields, ...items.map((item) => fields.map((field) => item[field]))].map((line) => `${line.map(quote).join(",")}\r\n`).join("");
    download(`selection.${kind}`, content);
    tell(`${items.length.toLocaleString("en")} texts are in selection.${kind} in your downloads.`);
  } catch (error) { showError(error); }
}

function showConfusion() {
  const box = byId("confusion");
  if (!data.prediction || !state.labeled || !data.label) { box.replaceChildren(); return; }
  const names = state.classes.map((each) => each.name);
  const predicts = state.explorer.predicts;
  const counts = names.map(() => predicts.map(() => 0));
  for (let row = 0; row < count; row += 1) if (data.label[row] !== NOTHING) counts[data.label[row]][data.prediction[row]] += 1;
  let shown = names.map((_, index) => index).filter((index) => counts[index].some(Boolean));
  if (shown.length > 15) {
    const wrong = (index) => counts[index].reduce((sum, value, other) => sum + (predicts[other] === names[index] ? 0 : value), 0);
    shown = shown.sort((one, other) => wrong(other) - wrong(one)).slice(0, 15);
  }
  const across = predicts.map((_, index) => index).filter((index) => shown.some((row) => counts[row][index] || names[row] === predicts[index]));
  const made = element("table");
  const head = element("tr");
  head.append(element("th", "Label ↓ Prediction →"), ...across.map((index) => element("th", predicts[index])));
  made.append(head, ...shown.map((index) => {
    const line = element("tr");
    line.append(element("th", names[index], { scope: "row" }));
    for (const other of across) {
      const number = counts[index][other];
      const cell = element("td", "", names[index] === predicts[other] ? {} : { class: "wrong" });
      if (number) {
        const button = element("button", String(number), { type: "button", "aria-label": `${number} texts of ${names[index]} predicted as ${predicts[other]}` });
        button.onclick = () => select(rowsWhere((row) => data.label[row] === index && data.prediction[row] === other));
        cell.append(button);
      }
      line.append(cell);
    }
    return line;
  }));
  box.replaceChildren(element("h2", "Confusion matrix: a cell selects its texts"), made);
}
