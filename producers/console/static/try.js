// Try it: a filter as it is typed, an event on its way, and why.

import { h, many, number, replace, select, share, table } from "./dom.js";
import { Graph } from "./graph.js";
import { PlaneView } from "./plane.js";
import { ask, post, store } from "./store.js";

const kept = {};

export function tryIt(root) {
  const type = kept.type || Object.keys(store.hello.types)[0];
  const left = h("div", { class: "column card" });
  const right = h("div", { class: "column card" });
  root.append(h("div", { class: "halves" }, left, right));
  const parts = [filterSide(left, type), eventSide(right)];
  return {
    update: (all) => parts.forEach((part) => part.update(all)),
    close: () => parts.forEach((part) => part.close()),
  };
}

// ── a filter ────────────────────────────────────────────────────────────────────────────────────────────────────

function filterSide(root, type) {
  kept.type = type;
  const said = h("div", { class: "said", role: "status", "aria-live": "polite" });
  const field = h("textarea", {
    class: "mono",
    id: "filter",
    rows: 3,
    spellcheck: "false",
    placeholder: example(type),
    value: kept.filter || "",
    "aria-label": "filter",
  });
  const mark = h("pre", { class: "mark mono", "aria-hidden": "true" });
  const place = h("div", { class: "picture mini" });
  const plane = new PlaneView(place, {});
  plane.layers = { curve: true, cubes: false, subscriptions: false, told: false, negative: false, events: true };
  const acting = h("div", { class: "acting" });
  root.append(
    h("h2", {}, "A filter"),
    select("type", Object.keys(store.hello.types), type, (name) => {
      kept.type = name;
      field.placeholder = example(name);
      ground();
      judge();
    }),
    h("div", { class: "typed" }, field, mark),
    said,
    acting,
    place,
  );
  field.addEventListener("input", () => {
    kept.filter = field.value;
    clearTimeout(kept.timer);
    kept.timer = setTimeout(judge, 120);
  });
  field.addEventListener("scroll", () => (mark.scrollTop = field.scrollTop));

  const axes = () => {
    const { dimensions, attributes } = store.hello.types[kept.type];
    const names = [...new Set([...dimensions, ...attributes.map((a) => a.name)])];
    return [names[0], names[1] || names[0]];
  };

  async function ground() {
    const [x, y] = axes();
    try {
      // the broker is named so that little is read: subscriptions are not drawn here
      const broker = Object.keys(store.hello.brokers)[0];
      plane.show(await ask("/api/space", { type: kept.type, x, y, broker }));
    } catch (error) {
      replace(said, h("p", { class: "bad" }, error.message));
    }
  }

  let asked = 0;
  async function judge() {
    const mine = ++asked;
    if (!field.value.trim()) {
      replace(said, h("p", { class: "hint" }, "Type a filter; it is read as you type."));
      replace(mark);
      plane.propose([], null);
      return;
    }
    const [x, y] = axes();
    try {
      const found = await post("/api/filter", { type: kept.type, filter: field.value, x, y });
      if (mine === asked) found.ok ? fine(found) : wrong(found);
    } catch (error) {
      if (mine === asked) replace(said, h("p", { class: "bad" }, error.message));
    }
  }

  function wrong(found) {
    field.setAttribute("aria-invalid", "true");
    const at = found.position ?? null;
    const text = field.value;
    if (at === null) replace(mark);
    else replace(mark, text.slice(0, at), h("mark", {}, text.slice(at, at + Math.max(1, word(text, at))) || " "));
    replace(said, h("p", { class: "bad", id: "fault" }, h("b", {}, found.code), ` ${found.reason}`));
    plane.propose([], null);
  }

  function fine(found) {
    field.removeAttribute("aria-invalid");
    replace(mark);
    const { cost } = found;
    const rows = [
      ["boxes", `${number(cost.boxes)}${cost.exact ? ", exact" : ", then the filter itself"}`],
      ["cubes", `${number(cost.cubes)} of ${number(cost.cubes_total)}${cost.wide ? ", a wide key" : ""}`],
      ["Hilbert ranges", `${number(cost.ranges)}${cost.ranges_uncapped !== cost.ranges ? ` of ${number(cost.ranges_uncapped)}` : ""}`],
      ["neighbours get", cost.forwards],
      ["share", `${share(cost.share)} ${cost.share_from === "publications" ? "of recent publications" : "of the cells"}`],
      ["over a link", cost.crossing_share === null ? "–" : share(cost.crossing_share)],
    ];
    replace(
      said,
      h("dl", { class: "pairs costs" }, rows.map(([k, v]) => h("div", {}, h("dt", {}, k), h("dd", {}, v)))),
      h("p", { class: "mono words" }, found.words.join("  ·  "), cost.boxes > found.words.length ? " …" : ""),
      h("p", { id: "matching" }, h("b", {}, `${number(found.matching.length)} of ${number(found.of)}`), " recent publications would have matched."),
    );
    plane.propose(found.boxes, found.matching);
  }

  if (store.hello.write) acting.append(subscribing(field));
  ground();
  judge();
  return {
    update(all) {
      if (all) plane.draw();
      else if (plane.said) plane.events();
    },
    close: () => plane.close(),
  };
}

const word = (text, at) => (/^\w+/.exec(text.slice(at)) || [" "])[0].length;

function example(type) {
  const { attributes } = store.hello.types[type];
  const said = attributes.slice(0, 3).map(({ name, kind, values }) => {
    if (kind === "text") return `${name} LIKE 'A%'`;
    if (kind === "category") return `${name} = '${values[0]}'`;
    if (kind === "boolean") return `${name} = true`;
    if (kind === "timestamp") return `${name} > '2026-01-01T00:00:00Z'`;
    return `${name} < 100`;
  });
  return said.join(" AND ");
}

function subscribing(field) {
  const id = h("input", { name: "id", placeholder: "id (one is made)", "aria-label": "id of the subscription" });
  const broker = select("at", Object.keys(store.hello.brokers), kept.at || Object.keys(store.hello.brokers)[0], (b) => (kept.at = b));
  const said = h("p", { role: "status", class: "hint" }, `as ${store.hello.client}`);
  const act = async (what) => {
    replace(said, "waiting for the receipt…");
    try {
      const at = broker.querySelector("select").value;
      const body = { broker: at, type: kept.type, id: id.value.trim(), filter: field.value };
      const { receipt } = await post(`/api/act/${what}`, body);
      const why = receipt.code ? `: ${receipt.code}, ${receipt.reason}` : "";
      replace(said, h("b", { class: receipt.kind === "refused" ? "bad" : "good" }, receipt.kind), ` ${receipt.key}${why}`);
      if (receipt.kind !== "refused") id.value = receipt.key.split("/")[2];
    } catch (error) {
      replace(said, h("span", { class: "bad" }, error.message));
    }
  };
  return h(
    "form",
    { class: "row", onsubmit: (event) => (event.preventDefault(), act("subscribe")) },
    broker,
    id,
    h("button", { type: "submit" }, "Subscribe"),
    h("button", { type: "button", class: "quiet", onclick: () => act("withdraw") }, "Withdraw"),
    said,
  );
}

// ── an event ────────────────────────────────────────────────────────────────────────────────────────────────────

function eventSide(root) {
  const said = h("div", { class: "said", role: "status", "aria-live": "polite" });
  const because = h("div", { class: "said", "aria-live": "polite" });
  const place = h("div", { class: "picture mini" });
  const field = h("textarea", { class: "mono", id: "event", rows: 3, spellcheck: "false", "aria-label": "event, as JSON" });
  const broker = select("enters at", Object.keys(store.hello.brokers), kept.enters || Object.keys(store.hello.brokers)[0], (b) => {
    kept.enters = b;
    follow();
  }, { name: "enters" });
  const recent = h("select", { name: "recent", "aria-label": "recent publications", onchange: () => pickRecent(recent.value) });
  const wanted = h("input", {
    type: "text",
    id: "subscription",
    list: "subscriptions",
    placeholder: "BROKER/TYPE/ID",
    "aria-label": "subscription",
    value: kept.subscription || "",
  });
  const known = h("datalist", { id: "subscriptions" });
  const graph = { now: null };
  root.append(
    h("h2", {}, "An event"),
    h("div", { class: "row" }, h("label", { class: "field" }, h("span", {}, "recent"), recent), broker),
    field,
    h(
      "div",
      { class: "row" },
      h("button", { type: "button", id: "follow", onclick: () => follow() }, "Follow it"),
      store.hello.write && publishing(field, () => broker.querySelector("select").value),
    ),
    place,
    said,
    h(
      "form",
      { class: "row", onsubmit: (event) => (event.preventDefault(), explain()) },
      h("label", { class: "field" }, h("span", {}, "why, or why not"), wanted),
      known,
      h("button", { type: "submit", id: "why" }, "Explain"),
    ),
    because,
  );
  graph.now = new Graph(place, { compact: true });
  graph.now.place();
  field.value = kept.event || sample();
  field.addEventListener("input", () => {
    kept.event = field.value;
    recent.value = "";
  });

  const asked = () => {
    const at = broker.querySelector("select").value;
    return recent.value ? { name: recent.value, broker: at } : { event: field.value, broker: at, type: kept.type };
  };

  function pickRecent(name) {
    const item = store.items.publications.find((one) => one.name === name);
    if (!item) return;
    field.value = pretty(item.value);
    broker.querySelector("select").value = item.broker;
    follow();
  }

  async function follow() {
    try {
      const found = await post("/api/event", asked());
      graph.now.mark = (name) => (found.reached.includes(name) ? (found.matches.some((m) => m.broker === name) ? "met" : "passed") : "dim");
      graph.now.markLink = (a, b) => (carried(found, a, b) ? "carried" : "dim");
      graph.now.update();
      graph.now.pulse(found.passages.filter((p) => p.carried).map((p) => [p.origin, p.target, p.hop, "accent"]));
      tell(found);
    } catch (error) {
      replace(said, h("p", { class: "bad" }, error.message));
    }
  }

  function tell(found) {
    replace(known, found.matches.slice(0, 50).map((m) => h("option", { value: `${m.broker}/${found.event.type}/${m.id}` })));
    const stopped = found.passages.filter((p) => p.carried === false).length;
    const notes = [
      found.admitted === false && h("p", { class: "bad" }, `${found.event.broker} refuses it: no advertisement of ${found.event.source} holds.`),
      found.unknown.length > 0 && h("p", { class: "warn" }, `Not known: ${found.unknown.slice(0, 4).join(", ")}`),
    ];
    const rows = found.matches.map((m) => [
      h("button", { type: "button", class: "linkish", onclick: () => explain(`${m.broker}/${found.event.type}/${m.id}`) }, m.id),
      m.client,
      m.broker,
      m.checked ? "by the filter" : "by boxes",
    ]);
    const cut = found.matches.length < found.matching ? ` (${number(found.matches.length)} shown)` : "";
    replace(
      said,
      notes,
      h("p", { id: "met" }, h("b", {}, many(found.matching, "subscription")), ` would get it${cut}. It comes to ${many(found.reached.length, "broker")}; ${many(stopped, "link")} ${stopped === 1 ? "stops" : "stop"} it.`),
      rows.length > 0 && table(["subscription", "client", "at", "decided"], rows),
    );
  }

  async function explain(key) {
    if (key) wanted.value = key;
    kept.subscription = wanted.value;
    try {
      const found = await post("/api/why", { ...asked(), subscription: wanted.value.trim() });
      replace(because, explanation(found));
      if (found.path.length > 1) graph.now.pulse(found.path.slice(1).map((b, i) => [found.path[i], b, i, "teal"]));
    } catch (error) {
      replace(because, h("p", { class: "bad" }, error.message));
    }
  }

  function options() {
    const names = store.items.publications.filter((item) => item.at).slice(-60).reverse();
    const value = recent.value;
    if (document.activeElement === recent) return;
    replace(recent, h("option", { value: "" }, "as typed below"), names.map((item) => h("option", { value: item.name }, `${item.name} · ${item.type}`)));
    recent.value = names.some((item) => item.name === value) ? value : "";
  }
  options();
  return {
    update() {
      options();
      graph.now.update();
    },
    close: () => graph.now.close(),
  };
}

const carried = (found, a, b) =>
  found.passages.some((p) => p.carried && ((p.origin === a && p.target === b) || (p.origin === b && p.target === a)));

function explanation(found) {
  const yes = { true: ["good", "yes"], false: ["bad", "no"], null: ["warn", "not known"] };
  const word = (value) => h("b", { class: yes[value][0] }, yes[value][1]);
  return h(
    "div",
    { class: "because" },
    h("p", {}, h("b", {}, found.subscription), ` of ${found.client || "–"} (${found.state})`),
    h("p", {}, h("code", {}, found.filter || "–")),
    h("p", { id: "verdict" }, "matches ", word(found.matches), `: ${found.because}. Reaches it: `, word(found.reaches), "."),
    found.predicates.length > 0 &&
      h(
        "ul",
        { class: "predicates" },
        found.predicates.map((p) =>
          h("li", { class: p.holds ? "good" : "bad" }, h("code", {}, p.predicate), ` saw ${p.value === null ? "nothing" : JSON.stringify(p.value)}`),
        ),
      ),
    found.hops.length > 0 &&
      table(
        ["link", "event", "because"],
        found.hops.map((hop) => [`${hop.origin} → ${hop.target}`, { true: "carried", false: "stopped", null: "not known" }[hop.carried], hop.why]),
      ),
    found.forwarding.length > 0 &&
      h(
        "details",
        {},
        h("summary", {}, "what became of it at every broker ", h("small", {}, many(found.forwarding.length, "line"))),
        table(["told", "part", "what became of it"], found.forwarding.slice(0, 60).map((f) => [`${f.broker} → ${f.towards}`, f.part, f.how || "not known"])),
      ),
  );
}

function pretty(value) {
  try {
    return JSON.stringify(JSON.parse(value));
  } catch {
    return value;
  }
}

function sample() {
  const newest = store.items.publications.filter((item) => item.at && item.type === kept.type).pop();
  return newest ? pretty(newest.value) : "{}";
}

function publishing(field, at) {
  const said = h("span", { role: "status", class: "hint" });
  const act = async () => {
    try {
      const { name } = await post("/api/act/publish", { broker: at(), type: kept.type, event: field.value });
      replace(said, "published ", h("b", {}, name));
    } catch (error) {
      replace(said, h("span", { class: "bad" }, error.message));
    }
  };
  return [h("button", { type: "button", class: "quiet", id: "publish", onclick: act }, `Publish as ${store.hello.client}`), said];
}
