"""Who takes part: the overlay, the subscribers and their filters, and quotes at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

TYPE = "stock.quote"

OVERLAY = """
   tokyo                              chicago
        \\                            /
         singapore ── london ── newyork
        /               │
   sydney           frankfurt
"""

CONFIG = """\
[deployment]
name = "demo"
prefix = "demo"
kafka = "{kafka}"
redis = "{redis}"
checkpoint = "checkpoint"

[overlay]
brokers = ["london", "singapore", "newyork", "frankfurt", "tokyo", "sydney", "chicago"]
links = [
  ["tokyo", "singapore"], ["sydney", "singapore"], ["singapore", "london"],
  ["london", "frankfurt"], ["london", "newyork"], ["newyork", "chicago"],
]

[types."stock.quote"]
reduction = "covering"
index = ["price", "volume"]
cubes = 1
[types."stock.quote".attributes]
symbol = {{ kind = "text" }}
price = {{ kind = "float", min = 0, max = 1000 }}
volume = {{ kind = "int", min = 0, max = 1000000 }}
side = {{ kind = "category", values = ["buy", "sell"] }}
halted = {{ kind = "boolean" }}

[settings]
trigger_ms = 200
home_shards = 1
wide_shards = 1
"""


class Wish(NamedTuple):
    """One subscription."""

    client: str
    broker: str
    id: str
    filter: str


FIRST = (
    Wish("alice", "tokyo", "big-blue", "symbol = 'IBM' AND price < 300"),
    Wish("alice", "chicago", "tech", "symbol IN ('IBM', 'MSFT') AND price BETWEEN 100 AND 500"),
    Wish("bruno", "frankfurt", "cheap", "price < 150"),
    Wish("chen", "singapore", "bulk", "volume >= 500000 AND symbol IN ('SAP', 'IBM', 'AAPL')"),
    Wish("dora", "chicago", "halted", "halted = true"),
    Wish("emil", "newyork", "a-names", "symbol LIKE 'A%' AND NOT (price BETWEEN 100 AND 800)"),
    Wish("fatima", "sydney", "odd", "volume IS NULL OR side = 'buy' AND price > 900"),
)
LATER = (
    Wish("bruno", "frankfurt", "bargain", "price < 60 AND side = 'sell'"),
    Wish("dora", "chicago", "penny", "price < 40"),
    Wish("emil", "newyork", "steal", "price < 100 AND side = 'buy'"),
    Wish("fatima", "tokyo", "dip", "symbol = 'SAP' AND price < 90"),
    Wish("goran", "london", "micro", "price < 45 AND volume < 600000"),
)
"""Each wants part of what bruno's `cheap` already brings past most brokers: there they need not be told."""
WISHES = (*FIRST, *LATER)
REFUSED = Wish("emil", "newyork", "typo", "price < 'cheap'")
REPLACED = Wish("chen", "singapore", "bulk", "volume >= 800000")
WITHDRAWN = Wish("dora", "chicago", "halted", "")


def quotes(seed: int) -> Callable[[], dict[str, object]]:
    """A source of random quotes; now and then one without a volume."""
    rng = random.Random(f"demo {seed}")

    def quote() -> dict[str, object]:
        made: dict[str, object] = {
            "symbol": rng.choice(("IBM", "SAP", "MSFT", "AAPL", "ORCL", "AMZN")),
            "price": round(min(999.0, rng.lognormvariate(5.3, 0.9)), 2),
            "volume": rng.randrange(0, 1_000_000, 100),
            "side": rng.choice(("buy", "sell")),
        }
        if rng.random() < 0.1:
            del made["volume"]
        if rng.random() < 0.08:
            made["halted"] = True
        return made

    return quote
