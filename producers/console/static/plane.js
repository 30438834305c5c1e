// A plane of the content space: cells and curve on a canvas, boxes and events as SVG above it.

import { colour, h, hideTip, replace, s, share, showTip } from "./dom.js";
import { store } from "./store.js";

const EDGE = { left: 58, right: 14, top: 14, bottom: 40 };
const ABSENT = 12;

export class PlaneView {
  constructor(root, { pick } = {}) {
    this.pick = pick;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.svg = s("svg", { role: "img", "aria-label": "plane of the content space" });
    this.root = h("div", { class: "plane" }, this.canvas, this.svg);
    root.append(this.root);
    this.axes = s("g", { class: "axes" });
    this.boxes = s("g", { class: "boxes" });
    this.own = s("g", { class: "own" });
    this.dots = s("g", { class: "dots" });
    this.svg.append(this.axes, this.boxes, this.own, this.dots);
    this.layers = { curve: true, cubes: true, subscriptions: true, told: true, negative: false, events: true };
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.root);
    this.known = new Map();
  }

  close() {
    this.observer.disconnect();
    hideTip();
  }

  show(said) {
    this.said = said;
    this.draw();
  }

  // boxes of a filter that is being typed
  propose(boxes, matching) {
    this.proposed = boxes;
    this.matching = matching && new Set(matching);
    this.draw();
  }

  draw() {
    const [w, hgt] = [this.root.clientWidth, this.root.clientHeight];
    if (!this.said || !w || !hgt) return;
    this.size = [w, hgt];
    this.svg.setAttribute("viewBox", `0 0 ${w} ${hgt}`);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = w * ratio;
    this.canvas.height = hgt * ratio;
    this.context = this.canvas.getContext("2d");
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { said, layers } = this;
    this.ground();
    if (layers.told && said.told?.kind === "ranges") this.cells(said.told);
    if (layers.negative && said.told?.negative) this.negative(said.told.negative.boxes);
    if (layers.cubes) this.cubes(said.cubes);
    if (layers.curve && said.curve) this.curve(said.curve);
    this.scale();
    this.rectangles();
    this.events();
  }

  x(share) {
    return EDGE.left + share * (this.size[0] - EDGE.left - EDGE.right);
  }

  y(share) {
    return this.size[1] - EDGE.bottom - share * (this.size[1] - EDGE.top - EDGE.bottom);
  }

  rect([x0, y0, x1, y1]) {
    return [this.x(x0), this.y(y1), Math.max(1, this.x(x1) - this.x(x0)), Math.max(1, this.y(y0) - this.y(y1))];
  }

  // ── on the canvas ─────────────────────────────────────────────────────────────────────────────────────────────

  ground() {
    this.context.fillStyle = colour("plane");
    this.context.fillRect(...this.rect([0, 0, 1, 1]));
  }

  cells({ cells, side }) {
    const fill = colour("teal");
    for (const [i, j, covered] of cells) {
      const [x0, x1] = i < 0 ? [0, 1] : [i / side, (i + 1) / side];
      const [y0, y1] = j < 0 ? [0, 1] : [j / side, (j + 1) / side];
      this.context.globalAlpha = 0.05 + 0.27 * covered;
      this.context.fillStyle = fill;
      this.context.fillRect(...this.rect([x0, y0, x1, y1]));
    }
    this.context.globalAlpha = 1;
  }

  negative(boxes) {
    const c = this.context;
    c.save();
    c.strokeStyle = colour("red");
    for (const box of boxes) {
      const [x, y, w, hgt] = this.rect(box);
      c.globalAlpha = 0.55;
      c.lineWidth = 1;
      c.strokeRect(x + 0.5, y + 0.5, w - 1, hgt - 1);
      c.save();
      c.beginPath();
      c.rect(x, y, w, hgt);
      c.clip();
      c.globalAlpha = 0.16;
      c.beginPath();
      for (let d = -hgt; d < w; d += 8) {
        c.moveTo(x + d, y + hgt);
        c.lineTo(x + d + hgt, y);
      }
      c.stroke();
      c.restore();
    }
    c.restore();
  }

  cubes(cubes) {
    const c = this.context;
    c.strokeStyle = colour("ink");
    c.globalAlpha = 0.22;
    c.lineWidth = 1;
    c.setLineDash([2, 3]);
    for (const [, ...box] of cubes) {
      const [x, y, w, hgt] = this.rect(box);
      c.strokeRect(Math.round(x) + 0.5, Math.round(y) + 0.5, Math.round(w), Math.round(hgt));
    }
    c.setLineDash([]);
    c.globalAlpha = 1;
  }

  // coloured from its beginning to its end, so that near in colour is near on the curve
  curve({ runs, side }) {
    const c = this.context;
    const total = runs.reduce((sum, run) => sum + run.length, 0);
    const at = ([i, j]) => [this.x((i + 0.5) / side), this.y((j + 0.5) / side)];
    c.lineWidth = Math.max(0.8, Math.min(2.2, (this.x(1) - this.x(0)) / side / 9));
    c.globalAlpha = 0.62;
    c.lineCap = "round";
    let done = 0;
    for (const run of runs) {
      for (let k = 0; k < run.length; k += 1, done += 1) {
        c.strokeStyle = c.fillStyle = along(done / total);
        if (run.length === 1) {
          c.beginPath();
          c.arc(...at(run[0]), c.lineWidth, 0, 7);
          c.fill();
        } else if (k + 1 < run.length) {
          c.beginPath();
          c.moveTo(...at(run[k]));
          c.lineTo(...at(run[k + 1]));
          c.stroke();
        }
      }
    }
    c.globalAlpha = 1;
  }

  // ── above it ──────────────────────────────────────────────────────────────────────────────────────────────────

  scale() {
    const { axes } = this.said;
    const [left, right, low, high] = [this.x(0), this.x(1), this.y(0), this.y(1)];
    const marks = [
      s("rect", { x: left, y: high, width: right - left, height: low - high, class: "frame" }),
      s("text", { x: (left + right) / 2, y: this.size[1] - 6, class: "title" }, title(axes.x)),
      s("text", { x: -(low + high) / 2, y: 13, class: "title", transform: "rotate(-90)" }, title(axes.y)),
      ...axes.x.ticks.map(([at, text]) => s("text", { x: this.x(at), y: low + 16, class: "tick x" }, text)),
      ...axes.y.ticks.map(([at, text]) => s("text", { x: left - 8, y: this.y(at) + 4, class: "tick y" }, text)),
    ];
    replace(this.axes, marks);
  }

  rectangles() {
    const made = [];
    const { said, layers } = this;
    if (layers.told && said.told?.kind === "boxes") {
      for (const box of said.told.boxes) made.push(this.box(box, "told"));
    }
    if (layers.subscriptions) {
      for (const one of said.subscriptions.drawn) {
        for (const box of one.boxes) {
          const rect = this.box(box, "sub");
          rect.addEventListener("pointermove", (event) =>
            showTip(event, h("b", {}, one.id), h("p", {}, `${one.client} at ${one.broker}`)),
          );
          rect.addEventListener("pointerleave", hideTip);
          made.push(rect);
        }
      }
    }
    replace(this.boxes, made);
    replace(this.own, (this.proposed || []).map((box) => this.box(box, "proposed")));
  }

  box(box, cls) {
    const [x, y, width, height] = this.rect(box);
    return s("rect", { x, y, width, height, class: cls, rx: 1.5 });
  }

  events() {
    if (!this.layers.events) {
      replace(this.dots);
      return;
    }
    const { axes, type } = this.said;
    const seen = store.items.publications.filter((item) => item.type === type && item.at);
    const fresh = new Map();
    const made = seen.map((item, i) => {
      const [u, v] = [item.at[axes.x.name], item.at[axes.y.name]];
      const cx = u === null || u === undefined ? this.x(0) - ABSENT : this.x(u);
      const cy = v === null || v === undefined ? this.y(0) + ABSENT : this.y(v);
      const matched = this.matching ? this.matching.has(item.name) : store.matched.has(item.name);
      const before = this.known.get(item.name);
      fresh.set(item.name, matched);
      const lit = matched && before === false ? "lit" : before === undefined && this.known.size ? "came" : "";
      const age = 0.35 + 0.65 * ((i + 1) / seen.length);
      const dot = s("circle", {
        cx,
        cy,
        r: matched ? 4.2 : 3,
        class: `event ${matched ? "matched" : ""} ${lit} ${item.name === this.pinned ? "pinned" : ""}`,
        opacity: matched ? Math.max(0.7, age) : age * 0.8,
      });
      dot.addEventListener("pointermove", (event) => this.tell(event, item));
      dot.addEventListener("pointerleave", hideTip);
      if (this.pick) dot.addEventListener("click", () => this.pick(item));
      return dot;
    });
    this.known = fresh;
    replace(this.dots, made);
  }

  tell(event, item) {
    const clients = [...(store.matched.get(item.name) || [])];
    showTip(
      event,
      h("b", {}, item.name),
      h("p", { class: "mono" }, item.value.slice(0, 200)),
      h("p", {}, `entered at ${item.broker}`),
      h("p", {}, clients.length ? `delivered to ${clients.slice(0, 6).join(", ")}` : "no delivery of it was seen"),
    );
  }
}

const title = (axis) => `${axis.name}${axis.in_grid ? "" : " (not in the grid)"}`;

const STOPS = [
  [76, 110, 245],
  [18, 184, 134],
  [245, 159, 0],
  [224, 49, 120],
];

function along(at) {
  const k = Math.min(STOPS.length - 2, Math.floor(at * (STOPS.length - 1)));
  const f = at * (STOPS.length - 1) - k;
  return `rgb(${STOPS[k].map((from, i) => Math.round(from + (STOPS[k + 1][i] - from) * f)).join(",")})`;
}

export const coverage = (told) => (told.share === undefined ? "" : share(told.share));
