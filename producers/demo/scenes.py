"""The demo from curtain to curtain.

services and job ─> subscribe (one is refused, some come later) ─> wait ─> publish everywhere
    ─> replace, withdraw ─> wait ─> publish again ─> recompute everything by flooding ─> summary
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

from infra.kafka import open_transport
from infra.local.ports import free_port
from producers.client.delivery import Delivery
from producers.client.inbox import RefusedError
from producers.client.publisher import Publisher
from producers.client.subscriber import Subscriber
from producers.client.waiting import wait
from producers.commands.live import figures, lags
from producers.commands.output import table
from producers.demo.cast import FIRST, LATER, OVERLAY, REFUSED, REPLACED, TYPE, WISHES, WITHDRAWN, Wish, quotes
from producers.demo.control_traffic import ControlCount, count_control
from producers.demo.stage import Narrator, Stage
from producers.verify import verify
from state.config import Config
from state.flooding import Judgement

TIMEOUT_S = 240.0
GUEST = "guest"
"""As whom the page of `--ui` subscribes and publishes."""


def play(events: int, seed: int, keep: bool, ui: bool = False) -> bool:
    """Play everything; whether nothing was missing and nothing wrong. With `ui` quotes go on until Ctrl-C."""
    narrator = Narrator()
    promise = "hilcast: content-based publish/subscribe on Kafka, Spark Structured Streaming and Redis"
    narrator.say(narrator.style("1", promise))
    narrator.say(narrator.style("36", OVERLAY))
    narrator.say("  Seven brokers, six links. Quotes enter anywhere; each goes exactly where a filter wants it.")
    narrator.title("Curtain up")
    with Stage(narrator, keep) as stage:
        show = Show(stage.config, narrator, seed)
        try:
            show.subscribe()
            show.publish(events)
            show.change()
            show.publish(events)
            fine = show.reckon()
            if ui:
                show.open_house()
        finally:
            show.close()
        if not fine:
            stage.keep()
    return fine


class Show:
    """Clients at their brokers, and publishers at every broker."""

    def __init__(self, config: Config, narrator: Narrator, seed: int) -> None:
        self.config = config
        self.narrator = narrator
        self.quote = quotes(seed)
        self.brokers = {(wish.client, wish.id): wish.broker for wish in WISHES}
        self.clients = {name: Subscriber(config, name) for name in dict.fromkeys(wish.client for wish in WISHES)}
        self.transport = open_transport(config)
        self.published = 0

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self) -> None:
        """Everybody subscribes, some later than others; one makes a mistake."""
        self.narrator.title("Subscribers, each at a broker, with a filter in plain words")
        self._enter(FIRST)
        self._refused()
        self._in_force()
        self.narrator.title("Latecomers: most brokers already let pass what they want")
        self._enter(LATER)
        self._in_force()

    def _enter(self, wishes: Sequence[Wish]) -> None:
        style = self.narrator.style
        for wish in wishes:
            self.narrator.say(f"  {style('32', f'{wish.client:<7}')} at {wish.broker:<10} {wish.id:<9} {wish.filter}")
        requests = [self.clients[wish.client].request(wish.broker, TYPE, wish.filter, id=wish.id) for wish in wishes]
        receipts = self.narrator.during(
            f"{len(requests)} receipts", lambda: [request.receipt(TIMEOUT_S) for request in requests]
        )
        kinds = sorted({receipt.kind for receipt in receipts})
        self.narrator.say(f"  all of them {', '.join(kinds)}, the last one in epoch {receipts[-1].epoch}")

    def _refused(self) -> None:
        style = self.narrator.style

        def attempt() -> str:
            try:
                self.clients[REFUSED.client].subscribe(
                    REFUSED.broker, TYPE, REFUSED.filter, id=REFUSED.id, timeout_s=TIMEOUT_S
                )
            except RefusedError as refused:
                return str(refused)
            return "accepted?"

        said = self.narrator.during(f"{REFUSED.client} tries: {REFUSED.filter}", attempt)
        self.narrator.say(f"  {style('33', 'refused')} {said}")

    def _in_force(self) -> None:
        self.narrator.during("in force at every broker (hilcast wait)", lambda: wait(self.config, TIMEOUT_S))

    def change(self) -> None:
        """A replacement without a gap, and a withdrawal."""
        style = self.narrator.style
        self.narrator.title("Two change their minds")
        self.narrator.say(f"  {style('32', REPLACED.client)} replaces {REPLACED.id}: {REPLACED.filter}")
        self.narrator.say(f"  {style('32', WITHDRAWN.client)} withdraws {WITHDRAWN.id}")
        replacement = self.clients[REPLACED.client].request(REPLACED.broker, TYPE, REPLACED.filter, id=REPLACED.id)

        def answered() -> list[str]:
            gone = self.clients[WITHDRAWN.client].withdraw(WITHDRAWN.broker, TYPE, WITHDRAWN.id, timeout_s=TIMEOUT_S)
            return [replacement.receipt(TIMEOUT_S).kind, gone.kind]

        self.narrator.say(f"  {' and '.join(self.narrator.during('their receipts', answered))}")
        self._in_force()

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def publish(self, count: int) -> None:
        """Quotes enter at every broker in turn; deliveries are shown as they come."""
        brokers = self.config.overlay.brokers
        self.narrator.title(f"{count} quotes, entered at every broker")
        with Publisher(self.config, type=TYPE, source="exchange") as publisher:
            for number in range(count):
                self.published += 1
                broker = brokers[number % len(brokers)]
                publisher.publish(self.quote(), id=f"q{self.published}", key=broker, broker=broker)
        self._watch()

    def _watch(self) -> None:
        """Show deliveries until everything is routed and nothing more comes."""
        shown, told, looked = 0, time.monotonic(), 0.0
        routed = False
        while True:
            fresh = [d for client in self.clients.values() for d in client.poll(0.05)]
            for delivery in fresh:
                self.narrator.say(self._line(delivery))
            shown += len(fresh)
            now = time.monotonic()
            if fresh:
                told = now
            elif routed:
                break
            elif now - told > 1.5:
                self.narrator.say(self.narrator.style("2", "  … routing"))
                told = now
            if not routed and now - looked > 1.0:
                looked = now
                routed = lags(self.config, self.transport).get((self.config.deployment.name, "route"), 1) == 0
        self.narrator.say(self.narrator.style("2", f"  {shown} deliveries"))

    def _line(self, delivery: Delivery) -> str:
        style, event, client = self.narrator.style, delivery.event, delivery.client
        goals = [self.brokers[client, id] for id in delivery.subscriptions if (client, id) in self.brokers]
        hops = [len(self.config.overlay.path(delivery.broker or "", goal)) - 1 for goal in goals]
        way = "local" if max(hops, default=0) == 0 else f"{max(hops)} hop{'s' if max(hops) > 1 else ''}"
        quote = f"{event['symbol']:<5}{event['price']:>8}"
        volume = f"x{event['volume']:,}" if "volume" in event else "no volume"
        halted = " halted" if event.get("halted") else ""
        return (
            f"  {style('36', f'{delivery.broker:<10}')} {style('2', f'─{way:─>7}─▶')} {style('32', f'{client:<7}')} "
            f"{quote} {volume:>10} {event['side']:<4}{halted:<7} {style('2', ', '.join(delivery.subscriptions))}"
        )

    # ── the reckoning ───────────────────────────────────────────────────────────────────────────────────────────

    def reckon(self) -> bool:
        """Recompute everything by flooding and compare."""
        self.narrator.title("The reckoning: every delivery recomputed by flooding, from the topics alone")
        judgement = self.narrator.during("hilcast verify", lambda: verify(self.config))
        control = count_control(self.config, self.transport)
        crossed, counted = figures(self.config).get("links", {}), 0
        if isinstance(crossed, dict):
            counted = sum(link["crossed"] for link in crossed.values())
        for line in summary(self.config, judgement, control, counted):
            self.narrator.say(f"  {line}")
        for finding in judgement.findings:
            self.narrator.say(f"  {finding}")
        fine = judgement.ok and judgement.pending == 0 and judgement.delivered > 0
        verdict = "nothing missing, nothing wrong" if fine else "not as it should be"
        took = self.narrator.style("2", f"({self.narrator.seconds:.0f} s in all)")
        self.narrator.say(f"\n  {self.narrator.style('1;32' if fine else '1;31', verdict)} {took}")
        return fine

    def open_house(self) -> None:
        """Let people look, and take part as a guest, while quotes go on."""
        from producers.commands.ui import serve

        self.narrator.title("Open house: the overlay in the browser, two quotes a second")
        closing = threading.Event()
        trickle = threading.Thread(target=self._trickle, args=(closing,), daemon=True)
        trickle.start()
        try:
            serve(self.config, "127.0.0.1", free_port(), None, GUEST)
        finally:
            closing.set()
            trickle.join(10.0)

    def _trickle(self, closing: threading.Event) -> None:
        with Publisher(self.config, type=TYPE, source="exchange") as publisher:
            while not closing.wait(0.5):
                self.published += 1
                broker = self.config.overlay.brokers[self.published % len(self.config.overlay.brokers)]
                publisher.publish(self.quote(), id=f"q{self.published}", key=broker, broker=broker)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self.transport.close()


def summary(config: Config, judgement: Judgement, control: ControlCount, crossed: int) -> Iterable[str]:
    """The table at the end."""
    flooded = judgement.published * len(config.overlay.links)
    rows: list[list[object]] = [
        ["published", judgement.published, ""],
        ["expected deliveries", judgement.expected, "by flooding"],
        ["delivered", judgement.delivered, f"{judgement.undecided} undecided" if judgement.undecided else ""],
        ["missing", judgement.missing + judgement.missing_ids, ""],
        ["wrong", judgement.wrong + judgement.wrong_ids + judgement.unanswered, ""],
        ["repeats", judgement.repeats, "same delivery id; the client library removes them"],
        ["control entries on links", control.sent, _against(control.sent, control.unreduced, "without reduction")],
        ["publications on links", crossed, _against(crossed, flooded, "by flooding")],
    ]
    return table(["", "", ""], rows).strip("\n").splitlines()


def _against(used: int, all_of: int, how: str) -> str:
    saved = f"{100 * (1 - used / all_of):.0f} % saved" if all_of else "nothing to save"
    return f"of {all_of} {how}: {saved}"
