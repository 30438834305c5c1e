// The content space of a type, two attributes at a time.

import { h, many, number, replace, select, share } from "./dom.js";
import { PlaneView } from "./plane.js";
import { ask, store } from "./store.js";

const LAYERS = [
  ["curve", "Hilbert curve", "curve"],
  ["cubes", "cubes", "ink"],
  ["subscriptions", "subscriptions", "accent"],
  ["told", "what travels", "teal"],
  ["negative", "negative space", "red"],
  ["events", "publications", "amber"],
];

const kept = {};

export function space(root, rest) {
  const chosen = kept.chosen || (kept.chosen = first());
  if (rest[0] && store.hello.types[rest[0]]) Object.assign(chosen, axes(rest[0]));
  const controls = h("form", { class: "controls", onsubmit: (event) => event.preventDefault() });
  const place = h("div", { class: "picture" });
  const words = h("p", { class: "caption", role: "status" });
  root.append(h("div", { class: "beside controlled" }, controls, h("div", { class: "column" }, place, words)));
  const plane = new PlaneView(place, { pick: (item) => change({ pin: chosen.pin === item.name ? "" : item.name }) });
  Object.assign(plane.layers, kept.layers || {});
  kept.layers = plane.layers;

  function change(what) {
    Object.assign(chosen, what);
    if (what.type) Object.assign(chosen, axes(what.type));
    if ("broker" in what) chosen.neighbour = neighbours(chosen.broker)[0] || "";
    if (what.pin === "") delete chosen.pin;
    build();
    look();
  }

  function build() {
    const { types, brokers } = store.hello;
    const attributes = types[chosen.type].attributes.map((a) => a.name);
    const had = document.activeElement?.name;
    replace(
      controls,
      select("type", Object.keys(types), chosen.type, (type) => change({ type, pin: "" }), { name: "type" }),
      select("across", attributes, chosen.x, (x) => change({ x }), { name: "x" }),
      select("up", attributes, chosen.y, (y) => change({ y }), { name: "y" }),
      select("subscriptions of", [["", "all brokers"], ...Object.keys(brokers)], chosen.broker, (broker) => change({ broker }), {
        name: "broker",
      }),
      chosen.broker &&
        select("told to", [["", "nobody"], ...neighbours(chosen.broker)], chosen.neighbour, (neighbour) => change({ neighbour }), {
          name: "neighbour",
        }),
      h(
        "fieldset",
        {},
        h("legend", {}, "shown"),
        LAYERS.map(([name, text, cls]) =>
          h(
            "label",
            { class: `layer ${cls}` },
            h("input", {
              type: "checkbox",
              name,
              checked: plane.layers[name],
              onchange: (event) => {
                plane.layers[name] = event.target.checked;
                plane.draw();
                say();
              },
            }),
            h("i", {}),
            text,
          ),
        ),
      ),
      chosen.pin
        ? h(
            "p",
            { class: "pin" },
            "cut through ",
            h("b", {}, chosen.pin),
            h("button", { type: "button", class: "quiet", onclick: () => change({ pin: "" }) }, "show shadows"),
          )
        : h("p", { class: "hint" }, "Boxes are shadows on this plane. Click a publication to cut the space through it."),
    );
    if (had) controls.elements[had]?.focus?.();
  }

  let asked = 0;
  async function look() {
    const mine = ++asked;
    plane.pinned = chosen.pin;
    try {
      const said = await ask("/api/space", query());
      if (mine !== asked) return;
      plane.show(said);
      kept.said = said;
      root.dataset.drawn = said.subscriptions.drawn.length;
      say();
    } catch (error) {
      if (mine === asked) replace(words, h("span", { class: "bad" }, error.message));
    }
  }

  function query() {
    const { type, x, y, broker, neighbour, pin } = chosen;
    return { type, x, y, broker: broker || "", neighbour: (broker && neighbour) || "", ...(pin ? { pin } : {}) };
  }

  function say() {
    if (plane.said) replace(words, sentences(plane.said, plane.layers).map((text) => h("span", {}, text)));
  }

  let ticks = 0;
  const view = {
    update(all) {
      if (all) plane.draw();
      else if (plane.said) plane.events();
      if (++ticks % 5 === 0) look();
    },
    close: () => plane.close(),
  };
  build();
  look();
  return view;
}

function first() {
  const { types, brokers } = store.hello;
  const held = (name) => store.live.brokers[name].subscriptions;
  const broker = Object.keys(brokers).length > 16 ? Object.keys(brokers).sort((a, b) => held(b) - held(a))[0] : "";
  return { ...axes(Object.keys(types)[0]), broker, neighbour: broker ? neighbours(broker)[0] : "" };
}

function axes(type) {
  const { dimensions, attributes } = store.hello.types[type];
  const names = [...new Set([...dimensions, ...attributes.map((a) => a.name)])];
  return { type, x: names[0], y: names[1] || names[0] };
}

const neighbours = (broker) =>
  store.hello.links.filter((link) => link.includes(broker)).map(([a, b]) => (a === broker ? b : a));

function sentences(said, layers) {
  const found = [];
  const { drawn, sampled, total } = said.subscriptions;
  if (layers.subscriptions) {
    const cut = sampled < total ? `${number(sampled)} of ${number(total)} subscriptions sampled` : many(total, "subscription");
    const met = drawn.length < sampled ? `, ${number(drawn.length)} meet this plane` : "";
    found.push(`${cut}${met}.`);
    if (said.brokers[0] < said.brokers[1]) found.push(`Of ${number(said.brokers[0])} of ${number(said.brokers[1])} brokers.`);
  }
  if (layers.curve) {
    if (said.curve) {
      const depth = said.curve.level < said.curve.levels ? `its upper ${said.curve.level} of ${said.curve.levels} levels` : "whole";
      found.push(`The curve is drawn ${depth}${said.curve.layer ? ", in one layer of the grid" : ""}.`);
    } else found.push("No curve runs here: these two attributes are not both in the grid.");
  }
  if (layers.cubes) found.push(`${many(said.cubes_total, "cube")}.`);
  if (layers.told && said.told) {
    const { told } = said;
    const what =
      told.kind === "ranges"
        ? `${many(told.total, "Hilbert range")}, ${share(told.share)} of the space`
        : `${many(told.total, "box", "boxes")}${told.boxes.length < told.shadows ? `, ${number(told.boxes.length)} drawn` : ""}`;
    found.push(`${told.to} holds from ${told.from}: ${what}.`);
    if (layers.negative && told.negative) {
      const { boxes, total: all } = told.negative;
      found.push(
        all === null
          ? `Negative space is not drawn of more than 1,000 boxes.`
          : `Negative space: ${many(all, "box", "boxes")}${boxes.length < all ? `, ${number(boxes.length)} drawn` : ""}.`,
      );
    }
  }
  if (layers.events) {
    const of = store.items.publications.filter((item) => item.type === said.type).length;
    found.push(of ? `The newest ${many(of, "publication")}; lit: a delivery was seen.` : "No publication of it came by yet.");
  }
  if (said.parts[0] < said.parts[1]) found.push(`Redis holds ${number(said.parts[0])} of ${number(said.parts[1])} parts.`);
  return found;
}
