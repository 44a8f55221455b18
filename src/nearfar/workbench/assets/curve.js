// Accuracy by number of labels, with its interval.
const NS = "http://www.w3.org/2000/svg";

function shape(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export function drawCurve(box, points) {
  const key = JSON.stringify(points);
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  if (!points.length) return box.replaceChildren();
  const most = Math.max(...points.map((point) => point.labels), 10);
  const x = (labels) => 30 + 225 * labels / most;
  const y = (share) => 110 - 100 * share;
  const svg = shape("svg", { viewBox: "0 0 260 130", role: "img" });
  const last = points[points.length - 1];
  svg.append(shape("title", {}, `Accuracy after ${last.labels} labels: ${Math.round(100 * last.accuracy)} percent`));
  for (const share of [0, 0.5, 1]) {
    svg.append(shape("line", { x1: 30, x2: 255, y1: y(share), y2: y(share), class: "grid" }));
    svg.append(shape("text", { x: 26, y: y(share) + 3, "text-anchor": "end" }, `${100 * share}`));
  }
  svg.append(shape("text", { x: 255, y: 126, "text-anchor": "end" }, `${most} labels`));
  svg.append(shape("text", { x: 30, y: 126 }, "0"));
  const high = points.map((point) => `${x(point.labels)},${y(point.high)}`);
  const low = points.map((point) => `${x(point.labels)},${y(point.low)}`).reverse();
  svg.append(shape("polygon", { points: [...high, ...low].join(" "), class: "band" }));
  svg.append(shape("polyline", { points: points.map((p) => `${x(p.labels)},${y(p.accuracy)}`).join(" "), class: "value" }));
  for (const point of points) svg.append(shape("circle", { cx: x(point.labels), cy: y(point.accuracy), r: 2.5 }));
  box.replaceChildren(svg);
}
