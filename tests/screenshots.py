"""The console's five main views as pictures for docs/console.md: `python -m tests.screenshots`.

The simulated world (`tests/simulation`) plays a stock exchange with the product's own core, the console serves it, and
Chromium looks. Needs no service; needs Chromium and the packages of `dev` and `ui`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from state.config import parse
from tests.browser import chromium, launched, opened, served
from tests.simulation.source import SimulatedSource
from tests.simulation.world import World

OUT = Path("docs/images")
BYTES_MAX = 250_000
CONFIG = """
[overlay]
brokers = ["london", "singapore", "newyork", "frankfurt", "tokyo", "sydney", "chicago", "paris", "mumbai"]
links = [
  ["tokyo", "singapore"], ["sydney", "singapore"], ["mumbai", "singapore"], ["singapore", "london"],
  ["london", "frankfurt"], ["london", "paris"], ["london", "newyork"], ["newyork", "chicago"],
]
[types.quote]
reduction = "mics"
index = ["price", "volume"]
cubes = 16
[types.quote.attributes]
price = { kind = "float", min = 0, max = 1000 }
volume = { kind = "int", min = 0, max = 1000000 }
symbol = { kind = "text" }
side = { kind = "category", values = ["buy", "sell"] }
[types.reading]
reduction = "negative-space"
index = ["celsius", "humidity"]
cubes = 4
[types.reading.attributes]
celsius = { kind = "float", min = -40, max = 60 }
humidity = { kind = "int", min = 0, max = 100 }
room = { kind = "category", values = ["cellar", "kitchen", "office", "roof"] }
[settings]
home_shards = 1
wide_shards = 1
"""
CLIENTS = ("alice", "bruno", "chen", "dora", "emil", "fatima", "gustav", "hanna")


class Exchange:
    """A world in which clients subscribe and quotes come and go."""

    def __init__(self, seed: int = 7, subscriptions: int = 60) -> None:
        self.draw = random.Random(seed)
        self.source = SimulatedSource(World(parse(CONFIG)))
        self.brokers = list(self.source.config.overlay.brokers)
        self.sent = 0
        for i in range(subscriptions):
            self.subscribe(i)
        self.source.subscribe("paris", "quote", "broken", "emil", "price << 5")
        self.source.settle()
        self.publish(1)
        # the first batches compile: no figure of theirs is worth a picture
        self.source.world.log.topics[self.source.config.topics.progress].clear()
        self.source.settle()

    def subscribe(self, i: int) -> None:
        draw = self.draw
        client, broker = draw.choice(CLIENTS), draw.choice(self.brokers)
        if i % 4 == 3:
            low, damp = draw.randrange(-30, 40), draw.randrange(0, 70)
            text = f"celsius BETWEEN {low} AND {low + draw.randrange(8, 30)} AND humidity >= {damp}"
            self.source.subscribe(broker, "reading", f"r{i}", client, text)
            return
        price, volume = draw.choice([60, 150, 300, 420, 700]), draw.randrange(0, 700_000)
        wide, deep = draw.randrange(30, 220), draw.randrange(80_000, 320_000)
        text = f"price BETWEEN {price} AND {price + wide} AND volume BETWEEN {volume} AND {volume + deep}"
        text += draw.choice(["", "", " AND side = 'buy'", " AND symbol IN ('IBM', 'SAP', 'AAPL')"])
        self.source.subscribe(broker, "quote", f"q{i}", client, text)

    def publish(self, count: int) -> None:
        events = []
        for _ in range(count):
            self.sent += 1
            events.append(self._event())
        self.source.publish(events)

    def _event(self) -> tuple[str, str, str, dict[str, object], str]:
        draw = self.draw
        broker = draw.choice(self.brokers)
        if draw.random() < 0.25:
            degrees = {"celsius": round(draw.gauss(12, 15), 1), "humidity": draw.randrange(15, 95)}
            return f"e{self.sent}", "reading", broker, degrees | {"room": draw.choice(["cellar", "roof"])}, "sensors"
        if draw.random() < 0.02:
            return f"e{self.sent}", "qoute", broker, {"price": 1}, "exchange"
        price = min(999.0, max(1.0, draw.gauss(draw.choice([120, 330, 450, 720]), 70)))
        quote = {"price": round(price, 2), "volume": int(draw.betavariate(1.4, 2.4) * 1_000_000)}
        quote |= {"symbol": draw.choice(["IBM", "SAP", "AAPL", "MSFT"]), "side": draw.choice(["buy", "sell"])}
        return f"e{self.sent}", "quote", broker, quote, "exchange"


def shoot(page, address: str, out: Path) -> list[Path]:
    """Look at each view as a reader would, and keep the picture."""
    made = []

    def keep(name: str) -> None:
        time.sleep(1.2)
        path = out / f"{name}.png"
        page.screenshot(path=path)
        made.append(path)

    page.goto(f"{address}/#/overlay")
    page.wait_for_selector("[data-broker=london]")
    keep("overlay")
    page.goto(f"{address}/#/overlay/link/singapore/london")
    page.wait_for_selector(".panel .reduction")
    keep("link")
    page.goto(f"{address}/#/space")
    page.select_option("select[name=broker]", "london")
    page.wait_for_selector(".sub")
    keep("space")
    page.goto(f"{address}/#/try")
    page.fill("#filter", "price BETWEEN 250 AND 480 AND volume < 400000 AND symbol IN ('IBM', 'SAP')")
    page.wait_for_selector("#matching")
    page.click("#follow")
    page.wait_for_selector("#met")
    keep("try")
    page.goto(f"{address}/#/live")
    page.wait_for_selector("table.deliveries")
    keep("live")
    return made


def main() -> int:
    """Make the pictures; 1 if one is too large to be kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    chosen = parser.parse_args()
    if chromium() is None:
        print("no Chromium is found: install it, or name it in HILCAST_CHROMIUM", file=sys.stderr)
        return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    exchange = Exchange()
    with (
        served(exchange.source) as address,
        launched() as browser,
        opened(browser, scheme=chosen.scheme, size=(1280, 800)) as page,
    ):
        page.goto(address)
        for _ in range(16):
            exchange.publish(exchange.draw.randrange(12, 30))
            time.sleep(1.0)
        made = shoot(page, address, chosen.out)
    for path in made:
        print(f"{path}  {path.stat().st_size:,} bytes")
    return 0 if all(path.stat().st_size <= BYTES_MAX for path in made) else 1


if __name__ == "__main__":
    sys.exit(main())
