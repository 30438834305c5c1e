// Live: what comes out, how fast, and whether it is right.

import { lines } from "./charts.js";
import { clock, h, ms, number, rate, replace, table } from "./dom.js";
import { post, store } from "./store.js";

const KINDS = [
  ["deliveries", "Deliveries"],
  ["letters", "Dead letters"],
  ["receipts", "Receipts"],
  ["publications", "Publications"],
];
const SHOWN = 100;
const WINDOW = 20;

const kept = { kind: "deliveries", search: "" };

export function live(root, rest) {
  if (KINDS.some(([kind]) => kind === rest[0])) kept.kind = rest[0];
  const charts = h("div", { class: "charts" });
  const deployments = h("div", { class: "deployments" });
  const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "topics" });
  const found = h("div", { class: "tail" });
  const count = h("p", { class: "caption", role: "status" });
  const search = h("input", {
    type: "search",
    placeholder: "search what is shown",
    "aria-label": "search",
    value: kept.search,
    oninput: () => {
      kept.search = search.value;
      tail();
    },
  });
  root.append(
    h(
      "div",
      { class: "halves uneven" },
      h("div", { class: "column card" }, h("div", { class: "row" }, tabs, search), count, found),
      h("div", { class: "column" }, h("div", { class: "card" }, charts), h("div", { class: "card" }, deployments), verdict()),
    ),
  );

  function choose(kind) {
    kept.kind = kind;
    location.hash = `#/live/${kind}`;
  }

  function draw() {
    replace(
      tabs,
      KINDS.map(([kind, text]) =>
        h(
          "button",
          {
            type: "button",
            role: "tab",
            "aria-selected": String(kind === kept.kind),
            class: kind === kept.kind ? "here" : "",
            "data-kind": kind,
            onclick: () => choose(kind),
          },
          text,
          " ",
          h("small", {}, number(store.items[kind].length)),
        ),
      ),
    );
  }

  function tail() {
    const words = kept.search.toLowerCase().split(/\s+/).filter(Boolean);
    const all = store.items[kept.kind];
    const rows = all.filter((item) => {
      const text = JSON.stringify(item).toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const newest = rows.slice(-SHOWN).reverse();
    const seen = store.live.seen[kept.kind] || 0;
    const follows = kept.kind === "deliveries" ? ` ${number(store.live.followed[0])} of ${number(store.live.followed[1])} delivery topics are followed.` : "";
    const over = store.live.seen.passed_over ? ` ${number(store.live.seen.passed_over)} records came too fast and were passed over.` : "";
    replace(
      count,
      `${number(rows.length)} of the newest ${number(all.length)}${words.length ? " match" : ""}${newest.length < rows.length ? `, ${number(newest.length)} shown` : ""}; ${number(seen)} seen since the console started.${follows}${over}`,
    );
    replace(found, newest.length ? rowsOf(kept.kind, newest) : h("p", { class: "hint" }, words.length ? "Nothing matches." : "Nothing yet."));
  }

  const focused = () => tabs.contains(document.activeElement);
  const view = {
    update() {
      replace(charts, pictures());
      replace(deployments, store.live.deployments.map(deployment));
      if (!focused()) draw();
      tail();
    },
    goTo(parts) {
      if (parts[0]) kept.kind = parts[0];
      draw();
      tabs.querySelector("[aria-selected=true]")?.focus();
      tail();
    },
  };
  draw();
  view.update();
  return view;
}

function rowsOf(kind, items) {
  const mono = (text) => h("code", {}, text.length > 220 ? `${text.slice(0, 220)}…` : text);
  const shown = {
    deliveries: [
      ["at", "client", "event", "matched", "value"],
      (i) => [clock(i.t), i.client, i.name, h("span", {}, i.subscriptions, i.stale && h("b", { class: "warn" }, " stale")), mono(i.value)],
    ],
    letters: [
      ["at", "code", "reason", "where", "value"],
      (i) => [clock(i.t), h("b", { class: "bad" }, i.code), i.reason, i.name || i.key || i.place, mono(i.value)],
    ],
    receipts: [
      ["at", "kind", "key", "owner", "epoch", "reason"],
      (i) => [clock(i.t), h("b", { class: i.kind === "refused" ? "bad" : "good" }, i.kind), i.key, i.owner, i.epoch, i.code ? `${i.code}: ${i.reason}` : ""],
    ],
    publications: [
      ["at", "event", "type", "entered at", "value"],
      (i) => [clock(i.t), i.name, i.type, i.fault ? h("b", { class: "bad" }, i.fault) : i.broker, mono(i.value)],
    ],
  }[kind];
  return table(shown[0], items.map(shown[1]), { class: kind });
}

function pictures() {
  const series = (k) => store.lines.map((line) => [line[0], line[k]]);
  const queries = store.live.deployments.flatMap((one) => one.queries.map((q) => ({ ...q, of: one.name })));
  const several = store.live.deployments.length > 1;
  const batches = queries
    .filter((q) => q.line.length)
    .flatMap((q) =>
      [0.5, 0.99].map((part) => ({
        name: `${q.query}${several ? ` ${q.of}` : ""} p${100 * part}`,
        cls: `${q.query === "route" ? "accent" : "teal"} ${part > 0.5 ? "slow" : ""}`,
        points: rolling(q.line, part),
      })),
    );
  return [
    lines(
      [
        { name: "published", cls: "ink", points: series(1) },
        { name: "delivered", cls: "accent", points: series(3) },
        { name: "refused", cls: "red", points: series(4) },
      ],
      { say: rate, label: "events a second" },
    ),
    lines(batches, { say: ms, label: "batch times" }),
  ];
}

// the percentile of each batch and those before it
const rolling = (line, part) =>
  line.map(([t], i) => {
    const times = line
      .slice(Math.max(0, i - WINDOW), i + 1)
      .map(([, n]) => n)
      .sort((a, b) => a - b);
    return [t, times[Math.min(times.length - 1, Math.floor(part * times.length))]];
  });

function deployment(one) {
  const state = one.driver === false ? ["bad", "stopped"] : one.driver ? ["good", "runs"] : ["warn", "not known"];
  const building = one.building;
  return h(
    "div",
    { class: "deployment" },
    h("h3", {}, one.name, " ", h("b", { class: state[0] }, state[1])),
    h("p", {}, `generation ${one.generation ?? "–"} in force · ${number(one.brokers)} brokers`),
    building &&
      h(
        "p",
        {},
        `generation ${building[0]} is being built: ${number(building[1])} of ${number(building[2])} parts `,
        h("progress", { max: building[2] || 1, value: building[1] }),
      ),
    table(
      ["query", "epoch", "lag", "last batch", "p50", "p99"],
      one.queries.map((q) => [q.query, q.epoch || "–", number(q.lag), q.last_batch_s_ago === null ? "–" : `${number(q.last_batch_s_ago)} s ago`, ms(q.p50), ms(q.p99)]),
    ),
  );
}

function verdict() {
  const said = h("div", { role: "status", "aria-live": "polite", class: "said" }, kept.verdict || h("p", { class: "hint" }, "Recomputes by flooding what should have been delivered, and compares."));
  const minutes = h("input", { type: "number", min: 1, max: 1440, value: 10, "aria-label": "minutes" });
  const act = async () => {
    button.disabled = true;
    replace(said, "reading the topics…");
    try {
      const found = await post("/api/verify", { minutes: Number(minutes.value) });
      const shown = ["published", "expected", "delivered", "missing", "wrong", "repeats", "undecided", "pending"];
      kept.verdict = h(
        "div",
        {},
        h("p", { id: "judged" }, h("b", { class: found.ok ? "good" : "bad" }, found.ok ? "nothing missing, nothing wrong" : "not as it should be")),
        h("dl", { class: "pairs" }, shown.map((name) => h("div", {}, h("dt", {}, name), h("dd", {}, number(found.figures[name]))))),
        found.findings.slice(0, 10).map((text) => h("p", { class: "bad mono" }, text)),
        h("p", { class: "hint" }, `the last ${number(found.minutes)} minutes; ${number(found.records)} records read in ${found.seconds} s`),
      );
      replace(said, kept.verdict);
    } catch (error) {
      replace(said, h("p", { class: "bad" }, error.message));
    }
    button.disabled = false;
  };
  const button = h("button", { type: "button", id: "verify", onclick: act }, "Verify");
  return h("div", { class: "card" }, h("div", { class: "row" }, button, h("label", { class: "field" }, h("span", {}, "the last minutes"), minutes)), said);
}
