// Lines over time, as SVG: few marks, the last value written at its end.

import { h, s } from "./dom.js";

const H = 120;
const PAD = { left: 4, right: 4, top: 14, bottom: 16 };

// series: [{ name, cls, points: [[t, value]...] }]; say: value -> text
export function lines(series, { say, label, width: W = 560, height = H, least = 0 }) {
  const all = series.flatMap((one) => one.points);
  const box = s("svg", { viewBox: `0 0 ${W} ${height}`, class: "lines", role: "img", "aria-label": label });
  if (all.length < 2) {
    box.append(s("text", { x: W / 2, y: height / 2, class: "none" }, "nothing yet"));
    return figure(series, say, box, label);
  }
  const first = Math.min(...all.map(([t]) => t));
  const last = Math.max(...all.map(([t]) => t));
  const top = Math.max(least, ...all.map(([, v]) => v)) || 1;
  const x = (t) => PAD.left + ((t - first) / (last - first || 1)) * (W - PAD.left - PAD.right);
  const y = (v) => height - PAD.bottom - (v / top) * (height - PAD.top - PAD.bottom);
  box.append(s("line", { x1: PAD.left, x2: W - PAD.right, y1: y(0), y2: y(0), class: "axis" }));
  box.append(s("line", { x1: PAD.left, x2: W - PAD.right, y1: y(top), y2: y(top), class: "axis faint" }));
  box.append(s("text", { x: PAD.left, y: y(top) - 3, class: "mark" }, say(top)));
  box.append(s("text", { x: PAD.left, y: height - 3, class: "mark" }, ago(last - first)));
  box.append(s("text", { x: W - PAD.right, y: height - 3, class: "mark end" }, "now"));
  for (const { cls, points } of series) {
    if (points.length < 2) continue;
    const path = points.map(([t, v], i) => `${i ? "L" : "M"}${x(t).toFixed(1)} ${y(v).toFixed(1)}`).join("");
    box.append(s("path", { d: path, class: `line ${cls}` }));
  }
  return figure(series, say, box, label);
}

const ago = (span) => (span >= 90000 ? `${Math.round(span / 60000)} min ago` : `${Math.round(span / 1000)} s ago`);

function figure(series, say, box, label) {
  const key = series.map(({ name, cls, points }) =>
    h("li", { class: cls }, h("i", {}), name, " ", h("b", {}, points.length ? say(points[points.length - 1][1]) : "–")),
  );
  return h("figure", { class: "chart" }, h("figcaption", {}, label), h("ul", { class: "key" }, key), box);
}

// parts of a whole: [[name, cls, value]...]
export function bar(parts, label) {
  const total = parts.reduce((sum, [, , value]) => sum + value, 0);
  return h(
    "div",
    { class: "bar", role: "img", "aria-label": label, title: label },
    parts.map(([, cls, value]) => total > 0 && h("i", { class: cls, style: { flexGrow: value } })),
  );
}
