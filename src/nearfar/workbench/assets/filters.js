// The filters in the head of the table: by words, label, prediction and confidence.
import { ask, byId, element, showError } from "./api.js";

const FIELDS = ["filter-text", "filter-label", "filter-prediction", "filter-confidence"];
let words = null; // the texts that contain the words; null without words
let ticket = 0;

export function start(onChange) {
  for (const id of FIELDS.slice(1)) byId(id).oninput = onChange;
  byId("filter-text").oninput = async () => {
    const mine = ticket += 1;
    await new Promise((resolve) => { setTimeout(resolve, 150); });
    if (mine !== ticket) return;
    const query = byId("filter-text").value.trim();
    try {
      const found = query ? new Set((await ask("search", { query, by: "words" })).rows) : null;
      if (mine !== ticket) return;
      words = found;
      onChange();
    } catch (error) { showError(error); }
  };
}

export function reset() {
  ticket += 1;
  words = null;
  for (const id of FIELDS) byId(id).value = "";
}

export function showChoices(classes, predicts) {
  fill("filter-label", [["", "any"], ["-", "no label"], ...classes.map((name) => [`+${name}`, name])]);
  fill("filter-prediction", [["", "any"], ["!", "another than the label"], ...predicts.map((name) => [`+${name}`, name])]);
  for (const id of ["filter-prediction", "below"]) byId(id).hidden = !predicts.length;
  byId("table").parentElement.classList.toggle("unpredicted", !predicts.length);
}

function fill(id, choices) {
  const box = byId(id);
  const key = JSON.stringify(choices);
  if (box.dataset.key === key) return;
  const chosen = box.value;
  box.replaceChildren(...choices.map(([value, text]) => element("option", text, { value })));
  if (choices.some(([value]) => value === chosen)) box.value = chosen;
  box.dataset.key = key;
}

// Whether a text passes all filters, as a function of its row; null where no filter is set.
export function test(data, classes, predicts) {
  const [, label, prediction, most] = FIELDS.map((id) => byId(id).value);
  const tests = [];
  const found = words;
  if (found) tests.push((row) => found.has(row));
  if (label) {
    const wanted = label === "-" ? -1 : classes.indexOf(label.slice(1));
    tests.push((row) => (classes[data.label[row]] === undefined ? -1 : data.label[row]) === wanted);
  }
  if (prediction === "!") {
    tests.push((row) => classes[data.label[row]] !== undefined && classes[data.label[row]] !== predicts[data.prediction[row]]);
  } else if (prediction) tests.push((row) => predicts[data.prediction[row]] === prediction.slice(1));
  if (most !== "") tests.push((row) => 100 * data.confidence[row] < Number(most));
  return tests.length ? (row) => tests.every((each) => each(row)) : null;
}
