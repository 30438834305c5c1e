"""The judge: reads what came out of Kafka, and compares it with what must and what may have come.

Nothing of the router is used: filters are evaluated by `tests/oracle.py`, messages read as docs/messages.md has them.

    must    an event and a subscription whose every possible state holds for it: not delivered is *missing*
    may     some possible state holds: delivered without even that is *wrong*, as is another destination than its own
    answer  a control event without receipt and dead letter, a publication neither routed nor refused: *unanswered*
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from benchmarks.faults.load import Event, Load, Place, Sent, Subscription
from benchmarks.faults.world import ATTRIBUTES, Deployment
from tests import oracle

OVERDUE_S = 60.0
"""A lease that is over for so long, while everything works, should have been said to be."""
MUCH = 500
"""Records at once that tell of more behind them."""
TOPICS_S = 2.0
"""How often it is looked for new topics."""
STRANGE = "strange"
"""Events whose ids begin so are the faults' own; what becomes of them is their business."""

STRANGER = "stranger"
"""A header of records that the faults write where only the job should."""


@dataclass
class Verdict:
    """What one look found."""

    publications: int = 0
    deliveries: int = 0
    repeats: int = 0
    expected: int = 0
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    lost_within_bound: int = 0
    """Missing at a type whose reduction, the probabilistic one, may lose: not counted as missing."""

    def add(self, other: Verdict) -> None:
        """Take another look's findings in."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Tail:
    """Reads topics on from where it stopped: to their present ends (`read`), or what has come by now (`follow`)."""

    def __init__(self, kafka: str, group: str) -> None:
        settings = {"bootstrap.servers": kafka, "group.id": group, "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer(settings)
        self._next: dict[tuple[str, int], int] = {}
        self._followed: set[tuple[str, int]] = set()
        self._asked_s = float("-inf")
        self._found: list[Message] = []
        """What was read and not handed out yet: a read that fails half way loses nothing."""

    def topics(self) -> list[str]:
        return sorted(self._consumer.list_topics(timeout=30.0).topics)

    def read(self, names: list[str], timeout_s: float = 120.0) -> list[Message]:
        """What is new in these topics, those that do not exist left out; partition by partition in order."""
        known = self._consumer.list_topics(timeout=30.0).topics
        self._followed.clear()
        starts, ends = [], {}
        for name in names:
            for number in known[name].partitions if name in known else ():
                low, end = self._consumer.get_watermark_offsets(TopicPartition(name, number), timeout=30.0)
                first = max(low, self._next.get((name, number), 0))
                if first < end:
                    starts.append(TopicPartition(name, number, first))
                    ends[name, number] = end
        self._consumer.assign(starts)
        deadline = time.monotonic() + timeout_s
        while ends:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not read to the end: {ends}")
            for place in self._polled(0.1):
                if self._next[place] >= ends.get(place, 2**62):
                    del ends[place]
        self._consumer.unassign()
        return self._handed()

    def follow(self, wanted: Callable[[str], bool]) -> list[Message]:
        """What has come by now in the topics of these names, perhaps not all of it; costs Kafka little."""
        if not self._followed or time.monotonic() - self._asked_s > TOPICS_S:
            self._asked_s = time.monotonic()
            known = self._consumer.list_topics(timeout=30.0).topics
            found = {(name, number) for name in known if wanted(name) for number in known[name].partitions}
            if new := found - self._followed:
                places = [TopicPartition(*place, self._next.get(place, OFFSET_BEGINNING)) for place in sorted(new)]
                self._consumer.incremental_assign(places)
                self._followed |= new
        while len(self._polled(0.05)) >= MUCH:
            pass  # events never stop coming: what is behind by little is taken the next time
        return self._handed()

    def _polled(self, timeout_s: float) -> list[tuple[str, int]]:
        """Take in what the client has; of which partitions it was."""
        places = []
        for message in self._consumer.consume(5000, timeout=timeout_s):
            if message.error() is not None:
                self._consumer.unassign()
                self._followed.clear()  # the next time begins behind what was taken in
                raise KafkaException(message.error())
            places.append((message.topic(), message.partition()))
            self._next[places[-1]] = message.offset() + 1
            self._found.append(message)
        return places

    def _handed(self) -> list[Message]:
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        self._consumer.close()


def header(message: Message, name: str) -> str:
    """The last header of this name, or nothing."""
    values = [value for key, value in message.headers() or [] if key == name]
    return (values[-1] or b"").decode(errors="replace") if values else ""


class Judge:
    """Follows the outputs of one deployment."""

    def __init__(self, deployment: Deployment, load: Load) -> None:
        self.deployment, self.load, self.prefix = deployment, load, deployment.prefix
        self.tail = Tail(deployment.services.kafka, f"{self.prefix}-judge")
        self.answers: dict[Place, dict[str, object]] = {}
        self.lapsed: set[tuple[str, int]] = set()
        """Key and version of leases said to be over."""
        self.letters: dict[Place, str] = {}
        self.excused: set[Place] = set()
        """Publications that a fault took away before they were routed."""
        self.strange: list[Place] = []
        """Publications of the faults themselves: only that they are routed or refused is asked."""
        self._routed: dict[int, bytearray] = defaultdict(bytearray)
        self._got: dict[tuple[str, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        """By client and event: by destination, the subscriptions named."""
        self._fresh: set[tuple[str, int]] = set()
        self._delivery: dict[tuple[str, str, int], str] = {}
        self._deliveries: Counter[int] = Counter()
        self._repeats: Counter[int] = Counter()
        """By event, what came since the last judgement."""
        self._faults: list[str] = []
        self._holds: dict[tuple[str, int], bool] = {}
        self._plans: dict[tuple[int, str, int], list[tuple[Subscription, bool]]] = {}
        self._judged = 0
        self._by_id = {each.id: each for each in load.subscriptions}
        self.probes: dict[int, float] = {}
        """When the probes with these event numbers were delivered, by Kafka's clock."""

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    def look(self, whole: bool = False) -> None:
        """Take in what is new; `whole`: all that there is now."""
        if whole:
            found = self.tail.read([name for name in self.tail.topics() if self._of_interest(name)])
        else:
            found = self.tail.follow(self._of_interest)
        for message in found:
            self.take(message)

    def _of_interest(self, name: str) -> bool:
        kind = name.removeprefix(f"{self.prefix}.")
        fixed = kind != name and kind in ("receipts", "deadletter", "routed")
        own = ("deliver.", "group.", "broadcast.")
        return fixed or name.startswith((f"{self.prefix}-", *(f"{self.prefix}.{each}" for each in own)))

    def take(self, message: Message) -> None:
        """Take in one record of a topic that the job writes; what bears a stranger's mark is none of its."""
        if header(message, STRANGER):
            return
        kind = message.topic().removeprefix(self.prefix + ".")
        if kind == "receipts":
            self._receipt(json.loads(message.value()))
        elif kind == "deadletter":
            self._letter(message)
        elif kind == "routed":
            self._line(json.loads(message.value()))
        else:
            self._delivered(message)

    def _receipt(self, receipt: dict[str, object]) -> None:
        if receipt.get("offset") is not None:
            self.answers.setdefault((receipt["topic"], receipt["partition"], receipt["offset"]), receipt)  # type: ignore[arg-type]
        if receipt["kind"] == "expired":
            self.lapsed.add((str(receipt["key"]), int(str(receipt["version"]))))

    def _letter(self, message: Message) -> None:
        place = (
            header(message, "hilcast_topic"),
            header(message, "hilcast_partition"),
            header(message, "hilcast_offset"),
        )
        if place[0] and place[1].isdigit() and place[2].isdigit():
            self.letters[place[0], int(place[1]), int(place[2])] = header(message, "hilcast_code")

    def _line(self, line: dict[str, object]) -> None:
        if line["topic"] == f"{self.prefix}.publications":
            first, last = int(str(line["first"])), int(str(line["last"]))
            seen = self._routed[int(str(line["partition"]))]
            seen.extend(bytes(max(0, last + 1 - len(seen))))
            seen[first : last + 1] = b"\1" * (last + 1 - first)

    def _delivered(self, message: Message) -> None:
        structured = header(message, "content-type").startswith("application/cloudevents+json")
        if structured or header(message, "ce_id").startswith(STRANGE):
            return  # the load sends no structured events; those of faults have their ids inside
        if not header(message, "ce_id").isdigit():
            self._faults.append(f"an event of unknown id {header(message, 'ce_id')[:40]!r} in {message.topic()}")
            return
        number, topic = int(header(message, "ce_id")), message.topic()
        if header(message, "hilcast_members"):
            named = [entry.partition("=") for entry in header(message, "hilcast_members").split(";") if entry]
            for client, _, ids in named:
                self._note(client, number, "shared", ids)
            return
        client = header(message, "hilcast_client")
        place, id = (client, topic, number), header(message, "hilcast_delivery")
        if self._delivery.setdefault(place, id) != id:
            self._faults.append(f"event {number} for {client} came again under another delivery id")
        self._note(client, number, topic, header(message, "hilcast_subscriptions"))
        if client == "probe":
            self.probes.setdefault(number, message.timestamp()[1] / 1000)

    def _note(self, client: str, number: int, destination: str, ids: str) -> None:
        self._deliveries[number] += 1
        got = self._got[client, number]
        self._repeats[number] += destination in got
        got[destination] |= set(ids.split(","))
        self._fresh.add((client, number))

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────────────

    def is_over(self, sent: Sent) -> bool:
        """Whether a lease was said to be over."""
        answer = self.answers.get(sent.place) if sent.place else None
        return answer is not None and ((sent.key or b"").decode(), answer["version"]) in self.lapsed

    def routed(self, window: int) -> int:
        """How many events up to this window are neither routed nor refused nor taken away; 0 is all well."""
        left = 0
        for event in self.load.events[self._judged :]:
            if event.window <= window and not self._accounted(event.place):
                left += 1
        return left

    def _accounted(self, place: Place | None) -> bool:
        if place is None:
            return False
        seen = self._routed[place[1]]
        routed = place[2] < len(seen) and seen[place[2]] == 1
        return routed or place in self.letters or place in self.excused

    def excuse(self, gone: Callable[[Place], bool]) -> None:
        """Publications at these places that were not routed yet are gone, and nobody's fault."""
        places = [event.place for event in self.load.events[self._judged :] if event.place is not None] + self.strange
        self.excused |= {place for place in places if gone(place) and not self._accounted(place)}

    def forget(self, topic: str) -> None:
        """Ask no more for answers to what was in a topic that is gone; its leases are over."""
        for each in self.load.subscriptions:
            each.lease = None
        self.load.control = [s for s in self.load.control if s.place is None or s.place[0] != topic]
        self.answers = {place: answer for place, answer in self.answers.items() if place[0] != topic}
        self.letters = {place: code for place, code in self.letters.items() if place[0] != topic}

    def unanswered(self) -> list[str]:
        """Control events that nobody answered, and publications of the faults that went nowhere."""
        lost = [
            f"publication at {place}: neither routed nor refused"
            for place in self.strange
            if not self._accounted(place)
        ]
        return lost + [
            f"control event at {sent.place}, key {(sent.key or b'')[:40]!r}"
            for sent in self.load.control
            if sent.place is None or (sent.place not in self.answers and sent.place not in self.letters)
        ]

    # ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────

    def judge(self, window: int, begins: Sequence[int] = (0,)) -> list[Verdict]:
        """Judge every event up to this window that was not judged yet, and whatever else came of older ones.

        A verdict for each fault: `begins` has the number of the first event sent under each, in order. What belongs to
        no event counts for the last one.
        """
        verdicts = [Verdict() for _ in begins]
        of = lambda number: verdicts[max(0, bisect_right(begins, number) - 1)]  # noqa: E731
        judged = self._judged
        while judged < len(self.load.events) and self.load.events[judged].window <= window:
            self._miss(judged, self.load.events[judged], of(judged))
            of(judged).publications += 1
            judged += 1
        for client, number in sorted(self._fresh):
            if number < judged:
                self._excess(client, number, of(number))
        for number, count in self._deliveries.items():
            of(number).deliveries += count
            of(number).repeats += self._repeats[number]
        verdicts[-1].wrong += self._faults
        verdicts[-1].unanswered += self.unanswered() + self._overdue()
        return verdicts

    def _overdue(self) -> list[str]:
        now_s = time.time()
        return [
            f"lease {sent.key!r} is over for {now_s - sent.lapses_s:.0f} s, nobody said so"
            for sent in (each.lease for each in self.load.subscriptions)
            if sent is not None and now_s > sent.lapses_s + OVERDUE_S and not self.is_over(sent)
        ]

    def accept(self, verdicts: Sequence[Verdict]) -> None:
        """Go on behind what was judged."""
        self._judged += sum(verdict.publications for verdict in verdicts)
        self._fresh = {(client, number) for client, number in self._fresh if number >= self._judged}
        self._deliveries, self._repeats, self._faults = Counter(), Counter(), []

    def _miss(self, number: int, event: Event, verdict: Verdict) -> None:
        if event.place in self.excused:
            return
        if not self._accounted(event.place):
            verdict.unanswered.append(f"event {number} at {event.place}: neither routed nor refused")
        if event.stranger:
            if event.place not in self.letters:
                verdict.unanswered.append(
                    f"event {number} at {event.place}: of an unknown publisher, and no dead letter"
                )
            return
        for each, must in self._plan(event):
            if must:
                verdict.expected += 1
                got = self._got.get((each.client, number), {})
                if not any(each.id in ids for ids in got.values()):
                    if event.type in self.deployment.lossy:
                        verdict.lost_within_bound += 1
                    else:
                        verdict.missing.append(f"event {number} ({event.type}) for {each.key} of {each.client}")

    def _excess(self, client: str, number: int, verdict: Verdict) -> None:
        event = self.load.events[number]
        allowed = {each.id for each, _ in self._plan(event) if each.client == client and not event.stranger}
        for destination, ids in self._got[client, number].items():
            for id in sorted(ids - allowed):
                if id in self.load.odd and self._held(self.load.odd[id], event.body):
                    continue  # a fault's own; that it must come is not asked
                verdict.wrong.append(f"event {number} ({event.type}) reached {client} for {id} in {destination}")
            for id in sorted(ids & allowed):
                each = self._by_id[id]
                own = {each.sink or f"{self.prefix}.deliver.{client}"} | ({"shared"} if each.groups else set())
                if destination not in own:
                    verdict.wrong.append(f"event {number} for {id} of {client} went to {destination}")

    def _plan(self, event: Event) -> list[tuple[Subscription, bool]]:
        """The subscriptions that may bring such an event, and whether each must."""
        place = (event.window, event.type, event.body)
        if place not in self._plans:
            plan = []
            for each, states in self.load.closed[event.window].get(event.type, ()):
                held = [text is not None and self._held(text, event.body) for text in states]
                if any(held):
                    plan.append((each, all(held)))
            self._plans[place] = plan
        return self._plans[place]

    def _held(self, text: str, body: int) -> bool:
        place = (text, body)
        if place not in self._holds:
            self._holds[place] = oracle.evaluate(text, self.load.bodies[body], ATTRIBUTES)
        return self._holds[place]

    def close(self) -> None:
        self.tail.close()
