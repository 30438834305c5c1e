// Making elements, words and numbers. Everything that comes from outside is set as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value") element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
}

export const number = (n) => (n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en"));

export function rate(n) {
  if (!n) return "0/s";
  return `${n >= 100 ? number(n) : n >= 10 ? n.toFixed(0) : n.toFixed(1)}/s`;
}

export const share = (n) => (n === null || n === undefined ? "–" : `${(100 * n).toFixed(n && n < 0.1 ? 2 : 1)} %`);

export const many = (n, one, more) => `${number(n)} ${n === 1 ? one : more || `${one}s`}`;

export function ms(n) {
  if (n === null || n === undefined) return "–";
  return n >= 10000 ? `${(n / 1000).toFixed(0)} s` : n >= 1000 ? `${(n / 1000).toFixed(1)} s` : `${Math.round(n)} ms`;
}

export const clock = (t) => new Date(t).toLocaleTimeString("en-GB");

export function select(label, options, value, change, attributes) {
  const made = h(
    "select",
    { ...attributes, onchange: () => change(made.value) },
    options.map((o) => (Array.isArray(o) ? o : [o, o])).map(([v, text]) => h("option", { value: v }, text)),
  );
  made.value = value;
  return h("label", { class: "field" }, h("span", {}, label), made);
}

export const table = (heads, rows, attributes) =>
  h(
    "div",
    { class: "scroll" },
    h(
      "table",
      attributes,
      h("thead", {}, h("tr", {}, heads.map((head, k) => h("th", { scope: "col", class: numeric(rows, k) && "n" }, head)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", { class: isNumber(cell) && "n" }, cell))))),
    ),
  );

const numeric = (rows, k) => rows.length > 0 && rows.every((row) => isNumber(row[k]));
const isNumber = (cell) => typeof cell === "string" && /^[–\d][\d,.]*( ?(%|ms|s|\/s))?$/.test(cell);

const tip = () => document.getElementById("tip");

export function showTip(event, ...content) {
  replace(tip(), ...content);
  tip().hidden = false;
  const box = tip().getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const y = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 12 : event.clientY + 18;
  tip().style.left = `${Math.max(8, x)}px`;
  tip().style.top = `${Math.max(8, y)}px`;
}

export const hideTip = () => {
  tip().hidden = true;
};

// colours as the style sheet has them now, for canvases
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
