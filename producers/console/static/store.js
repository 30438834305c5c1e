// What the page knows: one stream, one store, whoever listens is told.

const KEPT = { publications: 512, deliveries: 256, letters: 256, receipts: 256 };

export const store = { hello: null, live: null, items: empty(), matched: new Map(), lines: [], connected: false };

function empty() {
  return { publications: [], deliveries: [], letters: [], receipts: [] };
}

const listeners = new Set();

export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const tell = (what) => listeners.forEach((listener) => listener(what));

export function connect() {
  const stream = new EventSource("/api/stream");
  stream.addEventListener("hello", (event) => {
    store.hello = JSON.parse(event.data);
    store.items = empty();
    store.matched = new Map();
    store.connected = true;
    tell("hello");
  });
  stream.addEventListener("live", (event) => {
    take(JSON.parse(event.data));
    tell("live");
  });
  stream.onerror = () => {
    store.connected = false;
    tell("lost");
  };
}

function take(live) {
  for (const [kind, items] of Object.entries(live.items)) {
    const kept = store.items[kind];
    kept.push(...items);
    kept.splice(0, Math.max(0, kept.length - KEPT[kind]));
  }
  for (const delivery of live.items.deliveries) {
    if (!store.matched.has(delivery.name)) store.matched.set(delivery.name, new Set());
    store.matched.get(delivery.name).add(`${delivery.client}: ${delivery.subscriptions}`);
  }
  while (store.matched.size > 4 * KEPT.publications) store.matched.delete(store.matched.keys().next().value);
  if (live.lines) store.lines = live.lines;
  store.lines.push([live.t, live.rates.published, live.rates.routed, live.rates.copies, live.rates.dead_letters]);
  store.lines.splice(0, Math.max(0, store.lines.length - 300));
  store.live = live;
  store.connected = true;
}

export class Refused extends Error {
  constructor(said) {
    super(`${said.code}: ${said.reason}`);
    this.said = said;
  }
}

async function answered(response) {
  if (response.ok) return response.json();
  const text = await response.text();
  try {
    throw new Refused(JSON.parse(text));
  } catch (error) {
    throw error instanceof Refused ? error : new Refused({ code: String(response.status), reason: text });
  }
}

export const ask = async (path, query) =>
  answered(await fetch(query ? `${path}?${new URLSearchParams(query)}` : path));

export const post = async (path, body) =>
  answered(
    await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json", "x-hilcast-page": store.hello.page },
      body: JSON.stringify(body),
    }),
  );
