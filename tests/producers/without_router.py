"""A program: what a client does where nothing is installed but the base, played on a Kafka in memory.

`python -m tests.producers.without_router` hides every package that is neither Python's, ours, nor named as an argument,
and prints a line of JSON with what it found.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys

OURS = {"hilcast", "state", "producers", "infra", "streaming", "tests"}

CONFIG = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.quote]
reduction = "mics"
parameters = { merging = "imperfect", gap_cells = 4, cap = 64 }
[types.quote.attributes]
price = { kind = "float", min = 0, max = 1000 }
at = { kind = "timestamp", min = 2020-01-01T00:00:00Z }
"""


class Without:
    """A finder of modules that finds only some packages; the others are as if they were not installed."""

    def __init__(self, finder, shown):
        self.finder, self.shown = finder, shown

    def find_spec(self, name, path=None, target=None):
        return self.finder.find_spec(name, path, target) if name.split(".")[0] in self.shown else None


def played():
    """Subscribe, advertise, publish and receive; then ask for what is not installed."""
    from hilcast import Advertiser, HilcastError, Publisher, Subscriber, wait
    from state.config import parse
    from tests.producers.memory import MemoryKafka
    from tests.producers.worlds import answer, delivered

    config, kafka = parse(CONFIG), MemoryKafka()
    topics = config.topics
    kafka.make(
        topics.subscriptions, topics.advertisements, topics.publications, topics.receipts, topics.deliver("alice")
    )
    found = {"wait": callable(wait)}
    with Subscriber(config, "alice", transport=kafka) as alice, Advertiser(config, "ex", transport=kafka) as exchange:
        asked = alice.request("b1", "quote", "price < 100", id="s1"), exchange.request("b2", "quote", "price < 500")
        for topic in (topics.subscriptions, topics.advertisements):
            kafka.append(answer(config, (topic, 0, 0)))
        found["receipts"] = [request.receipt(5.0).kind for request in asked]
        with Publisher(config, broker="b2", type="quote", source="ex", transport=kafka) as publisher:
            publisher.publish({"price": 1})
        (published,) = kafka.logs[topics.publications]
        kafka.append(delivered(config, "alice", "e1", "s1", value=published.value))
        delivery = next(iter(alice))
        found["delivered"] = [delivery.event, delivery.subscriptions]
    lacking = (
        lambda: Subscriber(config, "bob", transport=kafka).subscribe("b1", "quote", "price < 1", mapping=True),
        lambda: Publisher(config, transport="kafka-python"),
    )
    found["lacking"] = []
    for build in lacking:
        try:
            build()
        except HilcastError as error:
            found["lacking"].append(str(error))
    return found


def commanded():
    """The exit code and the words of each command that needs more, and the modules of those that do not."""
    import producers.commands.events
    import producers.commands.registrations  # noqa: F401
    from producers import cli

    found = {}
    for arguments in ("up", "down", "run", "status", "inspect", "verify", "doctor", "grid t", "cost -t t TRUE"):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            found[arguments.split()[0]] = [cli.main(arguments.split()), said.getvalue()]
    return found


def main(base):
    shown = {*sys.stdlib_module_names, *OURS, *base}
    sys.meta_path[:] = [Without(finder, shown) for finder in sys.meta_path]
    before = set(sys.modules)
    found = {**played(), "commands": commanded()}
    found["foreign"] = sorted({name.split(".")[0] for name in set(sys.modules) - before} - shown)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
