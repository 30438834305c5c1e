// The overlay as a picture: brokers where the server laid them out, links with what moves on them.

import { colour, h, hideTip, many, number, rate, s, share, showTip, still } from "./dom.js";
import { store } from "./store.js";

const MARGIN = 64;
const APART = 3.2;

export class Graph {
  constructor(root, { chosen, pick, compact = false }) {
    this.pick = pick || (() => {});
    this.chosen = chosen || null;
    this.compact = compact;
    this.svg = s("svg", { class: "graph", role: "group", "aria-label": "brokers and links" });
    this.canvas = h("canvas", { class: "moving", "aria-hidden": "true" });
    this.root = h("div", { class: `stage ${compact ? "compact" : ""}` }, this.svg, this.canvas);
    root.append(this.root);
    this.scale = 1;
    this.shift = [0, 0];
    this.build();
    this.observer = new ResizeObserver(() => this.place());
    this.observer.observe(this.root);
    if (!compact) this.grip();
    this.particles = [];
    this.frame = still() ? 0 : requestAnimationFrame((t) => this.move(t));
  }

  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    this.frame = -1;
    hideTip();
  }

  build() {
    const { brokers, links } = store.hello;
    this.names = Object.keys(brokers);
    this.small = this.names.length > 40 || this.compact;
    this.links = links.flatMap(([a, b]) => [
      [a, b],
      [b, a],
    ]);
    this.lines = new Map();
    this.hits = new Map();
    this.nodes = new Map();
    const under = s("g", {});
    const over = s("g", {});
    for (const [a, b] of links) {
      const key = `${a} ${b}`;
      const group = s("g", { class: "link", tabindex: this.compact ? null : 0, role: "button", "data-link": key });
      const hit = s("line", { class: "hit" });
      const ways = [
        [a, b],
        [b, a],
      ].map((way) => {
        const line = s("line", { class: "way" });
        const waste = s("line", { class: "way waste" });
        this.lines.set(way.join(" "), { line, waste });
        return [line, waste];
      });
      group.append(...ways.flat(), hit);
      this.hits.set(key, { group, hit });
      this.pickable(group, () => this.pick({ link: [a, b] }), (event) => this.tellLink(event, a, b));
      under.append(group);
    }
    for (const name of this.names) {
      const disc = s("circle", { class: "disc" });
      const ring = s("circle", { class: "ring" });
      const label = s("text", { class: "name" }, name);
      const held = s("text", { class: "held" });
      const group = s("g", { class: "broker", tabindex: this.compact ? null : 0, role: "button", "data-broker": name });
      group.append(ring, disc, label, held);
      this.nodes.set(name, { group, disc, ring, label, held, at: [0, 0], r: 8 });
      this.pickable(group, () => this.pick({ broker: name }), (event) => this.tellBroker(event, name));
      over.append(group);
    }
    this.svg.append(under, over);
  }

  pickable(group, pick, tell) {
    if (this.compact) return;
    group.addEventListener("click", pick);
    group.addEventListener("pointermove", tell);
    group.addEventListener("pointerleave", hideTip);
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        pick();
        event.preventDefault();
      } else if (event.key.startsWith("Arrow")) {
        this.step(group, event.key);
        event.preventDefault();
      }
    });
  }

  // the arrow keys go to the next broker in their direction
  step(group, key) {
    const from = this.nodes.get(group.dataset.broker);
    if (!from) return;
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    let best = null;
    let least = Infinity;
    for (const node of this.nodes.values()) {
      const [x, y] = [node.at[0] - from.at[0], node.at[1] - from.at[1]];
      const along = x * dx + y * dy;
      const aside = Math.abs(x * dy) + Math.abs(y * dx);
      if (along > 1 && along + 2 * aside < least) {
        least = along + 2 * aside;
        best = node;
      }
    }
    best?.group.focus();
  }

  // wheel and drag; "0" fits everything again
  grip() {
    this.root.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    let from = null;
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.target === this.svg) from = [event.clientX - this.shift[0], event.clientY - this.shift[1]];
    });
    addEventListener("pointerup", () => (from = null));
    this.svg.addEventListener("pointermove", (event) => {
      if (!from) return;
      this.shift = [event.clientX - from[0], event.clientY - from[1]];
      this.place();
    });
  }

  zoom(by, x = this.root.clientWidth / 2, y = this.root.clientHeight / 2) {
    const before = this.scale;
    this.scale = Math.min(8, Math.max(1, this.scale * by));
    const k = this.scale / before;
    this.shift = this.scale === 1 ? [0, 0] : [x - k * (x - this.shift[0]), y - k * (y - this.shift[1])];
    this.place();
  }

  place() {
    const [w, hgt] = [this.root.clientWidth, this.root.clientHeight];
    if (!w || !hgt) return;
    this.svg.setAttribute("viewBox", `0 0 ${w} ${hgt}`);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = w * ratio;
    this.canvas.height = hgt * ratio;
    const mx = Math.min(this.compact ? 34 : MARGIN, w / 6);
    const my = Math.min(this.compact ? 26 : MARGIN, hgt / 6);
    const below = this.compact ? my : my + 22;
    // a wide tree in a tall window lies on its side
    const tall = hgt > 1.25 * w;
    for (const [name, [u, v]] of Object.entries(store.hello.brokers)) {
      const [x, y] = tall ? [v, u] : [u, v];
      const px = mx + x * (w - 2 * mx);
      const py = my + y * (hgt - my - below);
      this.nodes.get(name).at = [px * this.scale + this.shift[0], py * this.scale + this.shift[1]];
    }
    this.update();
  }

  radius(broker) {
    const base = this.small ? 4.5 : 11;
    const grow = this.small ? 0.9 : 2.6;
    return (base + grow * Math.log2(1 + broker.subscriptions) * (this.small ? 1 : 0.8)) * Math.min(1.6, this.scale ** 0.5);
  }

  update() {
    const { live } = store;
    for (const [name, node] of this.nodes) {
      const broker = live.brokers[name];
      const [x, y] = node.at;
      node.r = this.radius(broker);
      for (const part of [node.disc, node.ring]) {
        part.setAttribute("cx", x);
        part.setAttribute("cy", y);
      }
      node.disc.setAttribute("r", node.r);
      node.ring.setAttribute("r", node.r + (this.small ? 2.5 : 4));
      node.label.setAttribute("x", x);
      node.label.setAttribute("y", y + node.r + (this.small ? 10 : 18));
      node.held.setAttribute("x", x);
      node.held.setAttribute("y", y + 4);
      node.held.textContent = this.small || node.r < 12 ? "" : number(broker.subscriptions);
      const chosen = this.chosen?.broker === name;
      node.group.setAttribute("class", `broker ${broker.state} ${chosen ? "chosen" : ""} ${this.mark?.(name) || ""}`);
      node.group.setAttribute("data-state", broker.state);
      node.group.setAttribute("aria-label", this.brokerWords(name, broker));
    }
    this.root.classList.toggle("small", this.small && this.scale < 1.5);
    const moving = new Map(live.links.map((link) => [`${link[0]} ${link[1]}`, link]));
    for (const [key, { line, waste }] of this.lines) this.draw(key, line, waste, moving.get(key));
    for (const [key, { group, hit }] of this.hits) {
      const [a, b] = key.split(" ");
      this.put(hit, this.nodes.get(a).at, this.nodes.get(b).at, 0);
      const there = moving.get(key);
      const back = moving.get(`${b} ${a}`);
      const chosen = this.chosen?.link && this.chosen.link.join(" ") === key;
      group.setAttribute("class", `link ${chosen ? "chosen" : ""} ${this.markLink?.(a, b) || ""}`);
      group.setAttribute("data-wasted", there[3] + back[3]);
      group.setAttribute("aria-label", `link ${a} and ${b}. ${this.linkWords(there)}. ${this.linkWords(back)}`);
    }
    this.flow(live.links);
  }

  draw(key, line, waste, [, , crossed, wasted, speed, wastedSpeed]) {
    const [a, b] = key.split(" ");
    const [from, to] = [this.nodes.get(a).at, this.nodes.get(b).at];
    const apart = this.small ? 1.6 : APART;
    this.put(line, from, to, apart);
    this.put(waste, from, to, apart);
    const width = (this.small ? 0.9 : 1.4) + Math.min(6, 1.3 * Math.log2(1 + speed));
    line.style.strokeWidth = width;
    line.classList.toggle("idle", !crossed);
    const part = speed ? wastedSpeed / speed : crossed ? wasted / crossed : 0;
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
    waste.style.strokeWidth = width;
    waste.style.strokeDasharray = part > 0.001 ? `${part * 12} ${12 - part * 12}` : `0 ${length + 1}`;
    waste.classList.toggle("some", part > 0.001);
  }

  // a line beside the direct one, to the right of whoever goes along it
  put(line, [x0, y0], [x1, y1], apart) {
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const [nx, ny] = [(-(y1 - y0) / length) * apart, ((x1 - x0) / length) * apart];
    line.setAttribute("x1", x0 + nx);
    line.setAttribute("y1", y0 + ny);
    line.setAttribute("x2", x1 + nx);
    line.setAttribute("y2", y1 + ny);
  }

  // ── what moves ────────────────────────────────────────────────────────────────────────────────────────────────

  flow(links) {
    this.streams = links
      .filter(([, , , , speed]) => speed > 0)
      .map(([a, b, , , speed, wasted]) => ({
        a,
        b,
        every: Math.max(140, 1400 / Math.sqrt(speed)),
        waste: wasted / speed,
      }));
  }

  // pulses: [[a, b, startMs, colour]] of an event that is followed
  pulse(path) {
    const now = performance.now();
    this.pulses = path.map(([a, b, hop, cls]) => ({ a, b, begin: now + hop * 420, cls }));
  }

  move(now) {
    if (this.frame === -1) return;
    const context = this.canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const [plain, waste] = [colour("accent"), colour("amber")];
    for (const stream of this.streams || []) {
      const phase = (now / stream.every) % 1;
      const dots = Math.max(1, Math.min(6, Math.round(1800 / stream.every)));
      for (let k = 0; k < dots; k += 1) {
        const at = (phase + k) / dots;
        // the same share of the dots as of the events is for nothing
        const nth = Math.floor(now / stream.every) - k;
        const lost = Math.floor((nth + 1) * stream.waste) > Math.floor(nth * stream.waste);
        this.dot(context, stream.a, stream.b, at, lost ? waste : plain, this.small ? 1.6 : 2.4);
      }
    }
    for (const { a, b, begin, cls } of this.pulses || []) {
      const at = ((now - begin) % 4200) / 420;
      if (at >= 0 && at <= 1) this.dot(context, a, b, at, colour(cls), 5);
    }
    this.frame = requestAnimationFrame((t) => this.move(t));
  }

  dot(context, a, b, at, fill, r) {
    const [from, to] = [this.nodes.get(a), this.nodes.get(b)];
    const [dx, dy] = [to.at[0] - from.at[0], to.at[1] - from.at[1]];
    const length = Math.hypot(dx, dy) || 1;
    const apart = this.small ? 1.6 : APART;
    // within a broker nothing is seen
    if (at * length < from.r + r || (1 - at) * length < to.r + r) return;
    context.fillStyle = fill;
    context.beginPath();
    context.arc(from.at[0] + dx * at - (dy / length) * apart, from.at[1] + dy * at + (dx / length) * apart, r, 0, 7);
    context.fill();
  }

  // ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────

  brokerWords(name, broker) {
    const parts = `${broker.parts[0]} of ${broker.parts[1]} parts in use`;
    return `broker ${name}, ${STATES[broker.state]}, ${many(broker.subscriptions, "subscription")}, ${parts}`;
  }

  linkWords([a, b, crossed, wasted, speed]) {
    const nothing = crossed ? `, ${share(wasted / crossed)} for nothing` : "";
    return `${a} to ${b}: ${number(crossed)} crossed, ${rate(speed)}${nothing}`;
  }

  tellBroker(event, name) {
    const broker = store.live.brokers[name];
    showTip(
      event,
      h("b", {}, name),
      h("p", { class: broker.state }, STATES[broker.state], broker.host ? ` · hosted by ${broker.host}` : ""),
      h("p", {}, `${many(broker.subscriptions, "subscription")} of ${many(broker.clients, "client")}`),
      h("p", {}, `${broker.parts[0]} of ${broker.parts[1]} parts in use · ${rate(broker.in)} enter here`),
    );
  }

  tellLink(event, a, b) {
    const ways = store.live.links.filter(([x, y]) => (x === a && y === b) || (x === b && y === a));
    showTip(event, ...ways.map((way) => h("p", {}, this.linkWords(way))));
  }
}

export const STATES = {
  ok: "works",
  waiting: "waits: parts of its index are missing",
  stopped: "stopped: no driver has the lease",
  unhosted: "no deployment hosts it",
  unknown: "not known",
};
