// The overlay: brokers and links, live; a click tells of one.

import { bar, lines } from "./charts.js";
import { clock, h, ms, number, rate, replace, select, share, table } from "./dom.js";
import { Graph, STATES } from "./graph.js";
import { ask, store } from "./store.js";

export function overlay(root, rest) {
  const figures = h("dl", { class: "figures" });
  const place = h("div", { class: "picture" });
  const panel = h("aside", { class: "panel", hidden: true, "aria-label": "details" });
  root.append(figures, h("div", { class: "beside" }, place, panel));
  let chosen = read(rest);
  const graph = new Graph(place, { chosen, pick: go });
  const tools = h(
    "div",
    { class: "tools" },
    h("button", { type: "button", class: "quiet", title: "larger", onclick: () => graph.zoom(1.4) }, "+"),
    h("button", { type: "button", class: "quiet", title: "smaller", onclick: () => graph.zoom(1 / 1.4) }, "−"),
    select("find a broker", [["", "find…"], ...Object.keys(store.hello.brokers)], "", (name) => name && go({ broker: name })),
  );
  place.append(tools, legend());
  root.addEventListener("keydown", (event) => event.key === "Escape" && chosen && go(null));

  function go(what) {
    location.hash = what?.broker
      ? `#/overlay/broker/${encodeURIComponent(what.broker)}`
      : what?.link
        ? `#/overlay/link/${what.link.map(encodeURIComponent).join("/")}`
        : "#/overlay";
  }

  let asked = 0;
  async function tell() {
    panel.hidden = !chosen;
    if (!chosen) return;
    const mine = ++asked;
    try {
      const said = chosen.broker
        ? await ask(`/api/broker/${encodeURIComponent(chosen.broker)}`)
        : await ask(`/api/link/${chosen.link.map(encodeURIComponent).join("/")}`);
      if (mine === asked) show(chosen.broker ? aboutBroker(said) : aboutLink(said));
    } catch (error) {
      if (mine === asked) show([h("p", { class: "bad" }, error.message)]);
    }
  }

  function show(content) {
    const open = new Set([...panel.querySelectorAll("details[open]")].map((one) => one.dataset.name));
    const top = panel.scrollTop;
    const hadFocus = panel.contains(document.activeElement);
    const away = h("button", { type: "button", class: "quiet away", title: "close (Escape)", onclick: () => go(null) }, "×");
    replace(panel, away, ...content);
    for (const one of panel.querySelectorAll("details")) if (open.has(one.dataset.name)) one.open = true;
    panel.scrollTop = top;
    if (hadFocus) away.focus();
  }

  let ticks = 0;
  const view = {
    update() {
      replace(figures, headline());
      graph.update();
      if (ticks++ % 2 === 0) tell();
    },
    goTo(parts) {
      chosen = graph.chosen = read(parts);
      graph.place();
      tell();
    },
    close: () => graph.close(),
  };
  graph.place();
  view.update();
  return view;
}

function read([kind, ...names]) {
  const { brokers, links } = store.hello;
  if (kind === "broker" && brokers[names[0]]) return { broker: names[0] };
  if (kind === "link") {
    const link = links.find(([a, b]) => (a === names[0] && b === names[1]) || (a === names[1] && b === names[0]));
    if (link) return { link };
  }
  return null;
}

function headline() {
  const { rates, deployments, totals, links } = store.live;
  const queries = deployments.flatMap((one) => one.queries);
  const route = queries.filter((q) => q.query === "route");
  const crossed = links.reduce((sum, link) => sum + link[2], 0);
  const wasted = links.reduce((sum, link) => sum + link[3], 0);
  const subscriptions = Object.values(store.live.brokers).reduce((sum, one) => sum + one.subscriptions, 0);
  const offered = totals.entries_offered;
  return [
    ["published", rate(rates.published), `${number(totals.routed)} routed`],
    ["delivered", rate(rates.copies), `${number(totals.copies)} copies`],
    ["refused", rate(rates.dead_letters), `${number(totals.dead_letters)} dead letters`],
    ["for nothing", crossed ? share(wasted / crossed) : "–", `of ${number(crossed)} over links`],
    ["subscriptions", number(subscriptions), offered ? `${share(totals.entries_saved / offered)} not sent on` : "live"],
    ["route batch p99", ms(Math.max(...route.map((q) => q.p99 ?? 0), 0)), `lag ${number(sum(queries, "lag"))}`],
  ].map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, h("small", {}, more))));
}

const sum = (rows, name) => rows.reduce((total, row) => total + (row[name] || 0), 0);

const legend = () =>
  h(
    "ul",
    { class: "legend" },
    h("li", { class: "accent" }, h("i", {}), "events over a link"),
    h("li", { class: "amber" }, h("i", {}), "for nothing: nobody at its end wanted it, and no further link"),
    h("li", { class: "red" }, h("i", {}), "stopped, or waits for its index"),
  );

// ── one broker ──────────────────────────────────────────────────────────────────────────────────────────────────

function aboutBroker(said) {
  const facts = [
    ["hosted by", said.host || "nobody"],
    ["entering", rate(said.in)],
    ["subscriptions", number(said.subscriptions_total)],
    ["clients", number(said.clients_total)],
    ["parts in use", `${said.parts[0]} of ${said.parts[1]}`],
    ["dead letters seen", number(said.letters.length)],
  ];
  const held = said.types.map((type) => [
    type.type,
    type.reduction,
    number(type.subscriptions),
    number(type.boxes),
    `${type.parts_in_use}/${type.parts_wanted}`,
    type.epoch || "–",
  ]);
  return [
    h("h2", {}, said.broker),
    h("p", { class: `state ${said.state}` }, STATES[said.state]),
    pairs(facts),
    h("h3", {}, "holds"),
    table(["type", "reduction", "subs", "boxes", "parts", "epoch"], held),
    group(`clients`, said.clients_total, said.clients.map(([name, n]) => [name, number(n)]), ["client", "subscriptions"], true),
    group("subscriptions", said.subscriptions_total, said.subscriptions.map(registration), ["id", "client", "filter"], true),
    group("advertisements", said.advertisements_total, said.advertisements.map(registration), ["id", "publisher", "filter"]),
    said.distribution && distribution(said.distribution),
    group("dead letters", said.letters.length, said.letters.map((l) => [clock(l.t), l.code, l.reason]), ["at", "code", "reason"]),
  ];
}

const registration = (one) => [one.id, one.owner, h("code", {}, one.filter)];

function distribution(methods) {
  const rows = Object.entries(methods).map(([name, m]) => [name, number(m.messages), number(m.saved), number(m.discarded)]);
  return h("div", {}, h("h3", {}, "served together"), table(["method", "messages", "copies saved", "thrown away"], rows));
}

function group(name, total, rows, heads, open) {
  if (!total) return null;
  const cut = rows.length < total ? `${number(rows.length)} of ${number(total)} shown` : number(total);
  return h(
    "details",
    { "data-name": name, open: open && rows.length <= 12 },
    h("summary", {}, name, " ", h("small", {}, cut)),
    table(heads, rows),
  );
}

const pairs = (rows) => h("dl", { class: "pairs" }, rows.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v))));

// ── one link ────────────────────────────────────────────────────────────────────────────────────────────────────

function aboutLink(said) {
  return [h("h2", {}, `${said.a} — ${said.b}`), ...said.ways.map(aboutWay)];
}

function aboutWay(way) {
  const per = way.line.slice(1).map(([t, crossed, wasted], i) => {
    const [t0, crossed0, wasted0] = way.line[i];
    const seconds = (t - t0) / 1000 || 1;
    return [t, Math.max(0, (crossed - crossed0) / seconds), Math.max(0, (wasted - wasted0) / seconds)];
  });
  return h(
    "section",
    { class: "oneway" },
    h("h3", {}, `${way.origin} → ${way.target}`),
    h(
      "p",
      {},
      `${number(way.crossed)} events crossed`,
      way.crossed ? h("b", { class: way.wasted ? "amber" : "" }, `, ${share(way.wasted / way.crossed)} for nothing`) : "",
    ),
    lines(
      [
        { name: "crossed", cls: "accent", points: per.map(([t, n]) => [t, n]) },
        { name: "for nothing", cls: "amber", points: per.map(([t, , n]) => [t, n]) },
      ],
      { say: rate, label: "events a second", height: 84, width: 350 },
    ),
    way.types.filter((type) => type.received || type.held_there).map((type) => aboutReduction(way, type)),
  );
}

function aboutReduction(way, type) {
  const ranges = type.ranges !== undefined;
  const what = ranges ? "ranges" : "entries";
  return h(
    "div",
    { class: "reduction" },
    h("p", {}, h("b", {}, type.type), ` · ${type.reduction}`, type.saved !== null && h("em", {}, ` saves ${share(type.saved)}`)),
    bar(
      [
        ["forwarded", "accent", type.forwarded],
        ["withheld", "teal", type.withheld],
        ["held back", "faint", type.held_back || 0],
      ],
      `${number(type.forwarded)} forwarded, ${number(type.withheld)} withheld`,
    ),
    h(
      "ul",
      { class: "key" },
      h("li", {}, `received ${number(type.received)}`, ranges ? ` as ${number(type.ranges)} ranges` : ""),
      h("li", { class: "accent" }, h("i", {}), `forwarded ${number(type.forwarded)} ${what}`),
      h("li", { class: "teal" }, h("i", {}), `withheld ${number(type.withheld)}`),
      type.held_back !== undefined && h("li", { class: "faint" }, h("i", {}), `held back ${number(type.held_back)}: no advertisement`),
      type.negative_boxes !== undefined && h("li", {}, `${number(type.negative_boxes)} negative boxes`),
      h("li", {}, `${way.target} holds ${number(type.held_there)} ${type.kind}`),
    ),
    lines(
      [
        { name: "received", cls: "ink", points: type.line.map(([t, r]) => [t, r]) },
        { name: "forwarded", cls: "accent", points: type.line.map(([t, , f]) => [t, f]) },
        { name: "withheld", cls: "teal", points: type.line.map(([t, , , w]) => [t, w]) },
      ],
      { say: number, label: "over time", height: 76, width: 350 },
    ),
  );
}
