// The frame: which view is shown, how all is, dark or light, keys.

import { overlay } from "./overlay.js";
import { space } from "./space.js";
import { tryIt } from "./try.js";
import { live } from "./live.js";
import { h, many, replace } from "./dom.js";
import { connect, listen, store } from "./store.js";

const VIEWS = { overlay, space, try: tryIt, live };
let shown = null;
let close = () => {};

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { name: VIEWS[name] ? name : "overlay", rest };
}

function show() {
  if (!store.live) return;
  const { name, rest } = route();
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.dataset.view === name;
    link.classList.toggle("here", here);
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `hilcast · ${name}`;
  if (shown && shown.name === name) {
    shown.view.goTo?.(rest);
    return;
  }
  close();
  shown?.view.close?.();
  const root = h("section", { class: `view ${name}` });
  replace(document.getElementById("view"), root);
  shown = { name, view: VIEWS[name](root, rest) };
  close = listen((what) => what === "live" && shown.view.update?.());
}

function health() {
  const pill = document.getElementById("health");
  const faults = document.getElementById("faults");
  const said = store.live ? Object.values(store.live.faults) : [];
  replace(faults, said.map((text) => h("p", {}, text)));
  faults.hidden = said.length === 0;
  if (!store.connected || !store.live) {
    pill.textContent = store.live ? "the console is away" : "connecting";
    pill.className = "pill warn";
    return;
  }
  const states = Object.values(store.live.brokers).map((broker) => broker.state);
  const count = (state) => states.filter((one) => one === state).length;
  const wrong = [
    count("stopped") && `${many(count("stopped"), "broker")} stopped`,
    count("waiting") && `${many(count("waiting"), "broker")} waiting`,
    count("unhosted") && `${many(count("unhosted"), "broker")} without a host`,
    count("unknown") && `${many(count("unknown"), "broker")} not known`,
  ].filter(Boolean);
  pill.textContent = wrong.join(", ") || "all brokers work";
  pill.className = `pill ${wrong.length ? "bad" : "good"}`;
}

function theme() {
  const root = document.documentElement;
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const stored = localStorage.getItem("hilcast-theme");
  if (stored) root.dataset.theme = stored;
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    localStorage.setItem("hilcast-theme", root.dataset.theme);
    shown?.view.update?.(true);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.view.update?.(true));
}

function keys() {
  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const name = Object.keys(VIEWS)[Number(event.key) - 1];
    if (name) location.hash = `#/${name}`;
    if (event.key === "/") {
      const field = document.querySelector("main input[type=search], main textarea");
      if (field) {
        field.focus();
        event.preventDefault();
      }
    }
  });
}

theme();
keys();
addEventListener("hashchange", show);
listen(health);
listen((what) => {
  if (what === "hello") {
    shown?.view.close?.();
    close();
    shown = null;
  }
  if (what === "live" && !shown) show();
});
connect();
