// Points on a canvas: discs for thousands, squares of pixels for hundreds of thousands.
const MANY = 20000;

const number = (color) => {
  const value = parseInt(color.slice(1), 16);
  return ((255 << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
};

export function draw(canvas, places, { view, groups, hidden, nothing, grey, chosen, marked, path }) {
  const context = canvas.getContext("2d");
  const ratio = canvas.width / canvas.clientWidth;
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  if (places) {
    const side = Math.min(width, height) * 0.47 * view.scale;
    const size = Math.max(1.2, Math.min(6, 60 / Math.sqrt(places.length / 2) + Math.log2(view.scale + 1))) * ratio;
    const frame = { places, side, size, width, height, view, groups, hidden, nothing, grey };
    if (places.length / 2 > MANY) drawPixels(context, frame, chosen);
    else drawDiscs(context, frame, chosen);
    if (marked !== null) ring(context, frame, marked, ratio);
  }
  if (path) outline(context, path, ratio, canvas);
}

const across = ({ places, side, width, view }, row) => width / 2 + (places[2 * row] + view.x) * side;
const down = ({ places, side, height, view }, row) => height / 2 - (places[2 * row + 1] + view.y) * side;

function drawDiscs(context, frame, chosen) {
  const { places, size, width, height, groups, hidden, nothing, grey } = frame;
  const parts = new Map();
  for (let row = 0; row < places.length / 2; row += 1) {
    const group = groups.of ? groups.of[row] : nothing;
    if (hidden.has(group)) continue;
    const x = across(frame, row);
    const y = down(frame, row);
    if (x < -size || y < -size || x > width + size || y > height + size) continue;
    const color = group === nothing ? grey : groups.colors[group];
    const key = `${chosen && !chosen.has(row) ? 0 : 1}${color}`;
    if (!parts.has(key)) parts.set(key, []);
    parts.get(key).push(x, y);
  }
  for (const [key, points] of [...parts.entries()].sort(([one], [other]) => (one < other ? -1 : 1))) {
    context.globalAlpha = key[0] === "0" ? 0.18 : 0.85;
    context.fillStyle = key.slice(1);
    context.beginPath();
    for (let place = 0; place < points.length; place += 2) {
      context.moveTo(points[place] + size, points[place + 1]);
      context.arc(points[place], points[place + 1], size, 0, 2 * Math.PI);
    }
    context.fill();
  }
  context.globalAlpha = 1;
}

function drawPixels(context, frame, chosen) {
  const { places, size, width, height, view, side, groups, hidden, nothing, grey } = frame;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const colors = groups.colors.map(number);
  const other = number(grey);
  const faint = (color) => ((color & 0xffffff) | (46 << 24)) >>> 0;
  const reach = Math.max(2, Math.round(size));
  const shift = reach >> 1;
  const any = hidden.size > 0;
  for (const strong of chosen ? [false, true] : [true]) {
    const rows = strong && chosen ? chosen : null;
    const total = rows ? rows.size : places.length / 2;
    const next = rows ? rows.values() : null;
    for (let place = 0; place < total; place += 1) {
      const row = next ? next.next().value : place;
      const group = groups.of ? groups.of[row] : nothing;
      if (any && hidden.has(group)) continue;
      const left = Math.round(width / 2 + (places[2 * row] + view.x) * side) - shift;
      const top = Math.round(height / 2 - (places[2 * row + 1] + view.y) * side) - shift;
      if (left < 0 || top < 0 || left + reach > width || top + reach > height) continue;
      let color = group === nothing ? other : colors[group];
      if (!strong) color = faint(color);
      for (let y = top; y < top + reach; y += 1) pixels.fill(color, y * width + left, y * width + left + reach);
    }
  }
  context.putImageData(image, 0, 0);
}

function ring(context, frame, row, ratio) {
  context.strokeStyle = getComputedStyle(context.canvas).color;
  context.lineWidth = 2 * ratio;
  context.beginPath();
  context.arc(across(frame, row), down(frame, row), frame.size + 4 * ratio, 0, 2 * Math.PI);
  context.stroke();
}

function outline(context, path, ratio, canvas) {
  context.strokeStyle = getComputedStyle(canvas).color;
  context.lineWidth = 1.5 * ratio;
  context.beginPath();
  for (const [x, y] of path) context.lineTo(x * ratio, y * ratio);
  context.closePath();
  context.stroke();
}

// Whether a point is inside a polygon: how often a ray to the right crosses it.
export function inside(polygon, x, y) {
  let odd = false;
  for (let one = 0, other = polygon.length - 1; one < polygon.length; other = one, one += 1) {
    const [left, top] = polygon[one];
    const [right, bottom] = polygon[other];
    if (top > y !== bottom > y && x < ((right - left) * (y - top)) / (bottom - top) + left) odd = !odd;
  }
  return odd;
}
