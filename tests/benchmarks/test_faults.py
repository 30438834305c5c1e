"""The campaign's judge: it is given what a router might do, right and wrong, and must tell one from the other."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import benchmarks.faults.drivers  # noqa: F401 makes its kinds known
from benchmarks.faults.figures import keep, kept, summary
from benchmarks.faults.judge import STRANGE, Judge, Verdict
from benchmarks.faults.kind import KINDS
from benchmarks.faults.load import Load
from benchmarks.faults.scene import Outcome
from benchmarks.faults.world import SHORT, VARIANTS, Deployment
from state.config import load

NOWHERE = SimpleNamespace(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")


@dataclass
class Record:
    """A record as the Kafka client gives it."""

    named: str
    about: dict[str, str] = field(default_factory=dict)
    holds: object = None

    def topic(self) -> str:
        return self.named

    def value(self) -> bytes:
        return json.dumps(self.holds).encode()

    def headers(self) -> list[tuple[str, bytes]]:
        return [(name, text.encode()) for name, text in self.about.items()]

    def timestamp(self) -> tuple[int, int]:
        return 2, 0


class Play:
    """A load that was never sent, and a router that does exactly what it should unless told otherwise."""

    def __init__(self, folder: Path) -> None:
        self.deployment = Deployment(NOWHERE, folder / "deployment", "play", SHORT)  # type: ignore[arg-type]
        self.load = Load(self.deployment, 3)
        self.load.produce = self._placed  # type: ignore[method-assign]
        self.offsets = {"publications": 0, "subscriptions": 0, "advertisements": 0}
        self.judge = Judge(self.deployment, self.load)
        self.load.cast()
        self.load.close(lambda sent: False)

    def _placed(self, topic, key, value, headers=(), placed=lambda place: None, timestamp_ms=0) -> None:
        placed((f"play.{topic}", 0, self.offsets[topic]))
        self.offsets[topic] += 1

    def route(self, window: int) -> list[Record]:
        """Deliveries of every event up to a window, and its line in `routed`."""
        records = []
        for number, event in enumerate(self.load.events):
            if event.window <= window and not event.stranger:
                plan = self.judge._plan(event)
                for place in sorted({(s.client, s.sink or f"play.deliver.{s.client}") for s, must in plan if must}):
                    mine = [s for s, _ in plan if (s.client, s.sink or f"play.deliver.{s.client}") == place]
                    about = {"ce_id": str(number), "hilcast_client": place[0], "hilcast_delivery": f"{number} {place}"}
                    about["hilcast_subscriptions"] = ",".join(sorted(s.id for s in mine))
                    records.append(Record(place[1], about))
            elif event.window <= window:
                place = {"topic": "play.publications", "partition": "0", "offset": str(event.place[2])}
                records.append(Record("play.deadletter", {f"hilcast_{k}": v for k, v in place.items()}))
        line = {"topic": "play.publications", "partition": 0, "first": 0, "last": self.offsets["publications"] - 1}
        return [*records, Record("play.routed", holds=line), *self.answers()]

    def answers(self) -> list[Record]:
        kinds = {"kind": "accepted", "version": 1}
        places = [(sent.key.decode(), sent.place) for sent in self.load.control]
        return [
            Record("play.receipts", holds={**kinds, "key": k, "topic": p[0], "partition": p[1], "offset": p[2]})
            for k, p in places
        ]

    def verdict(self, records: list[Record], window: int):
        for record in records:
            self.judge.take(record)
        return self.judge.judge(window)[0]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    made = Play(tmp_path)
    made.load.some(300)
    return made


def test_a_right_router_is_found_right(play: Play) -> None:
    """Everything delivered, answered and routed: nothing is missing, wrong or unanswered, though much was expected."""
    window = play.load.close(lambda sent: False)
    verdict = play.verdict(play.route(window), window)
    assert verdict.expected > 300
    assert verdict.publications == 300
    assert (verdict.missing, verdict.wrong, verdict.unanswered, verdict.lost_within_bound) == ([], [], [], 0)


def test_what_faults_publish_is_their_own_business(play: Play) -> None:
    """Odd ids and structured events, which have their ids inside; not so any other id that nobody sent."""
    window = play.load.close(lambda sent: False)
    records = play.route(window)
    odd = [{"ce_id": f"{STRANGE}\0"}, {"content-type": "application/cloudevents+json; charset=utf-8"}]
    assert not play.verdict([*records, *(Record("play.deliver.c0", about) for about in odd)], window).wrong
    assert play.verdict([*records, Record("play.deliver.c0", {"ce_id": "x"})], window).wrong


def test_one_delivery_less_is_missing(play: Play) -> None:
    """Any single delivery that does not come is found, unless its type may lose."""
    window = play.load.close(lambda sent: False)
    records = play.route(window)
    lost = next(r for r in records if ".deliver." in r.named and play.load.events[int(r.about["ce_id"])].type == "q0")
    verdict = play.verdict([r for r in records if r is not lost], window)
    assert len(verdict.missing) == len(lost.about["hilcast_subscriptions"].split(","))
    assert not verdict.wrong


@pytest.mark.parametrize(
    "what", ["another client", "another event", "another id", "another topic", "another delivery id"]
)
def test_one_delivery_too_many_is_wrong(play: Play, what: str) -> None:
    """A delivery to somebody, of something, for a reason or to a place that nothing explains is found."""
    window = play.load.close(lambda sent: False)
    records = play.route(window)
    some = next(r for r in records if ".deliver.c" in r.named)
    event = play.load.events[int(some.about["ce_id"])]
    changed = {
        "another client": {"hilcast_client": "nobody"},
        "another event": {"ce_id": next(str(n) for n, e in enumerate(play.load.events) if e.type != event.type)},
        "another id": {"hilcast_subscriptions": "q8_99"},
        "another topic": {},
        "another delivery id": {"hilcast_delivery": "other"},
    }[what]
    named = "play.deliver.c99" if what == "another topic" else some.named
    verdict = play.verdict([*records, Record(named, some.about | changed)], window)
    assert verdict.wrong
    assert not verdict.missing


def test_what_changes_may_come_or_not(play: Play) -> None:
    """While a subscription is withdrawn its deliveries may come or not; once that is fenced they may not."""
    standing = next(s for s in play.load.subscriptions if s.type == "q0" and s.client != "probe" and not s.sink)
    standing.states.append(None)
    window = play.load.close(lambda sent: False)
    records = play.route(window)
    assert not play.verdict(records, window).missing
    strict = play.load.close(lambda sent: False)
    assert play.load.closed[window]["q0"] != play.load.closed[strict]["q0"]
    late = [states for each, states in play.load.closed[strict]["q0"] if each is standing]
    assert late == [(None,)]


def test_silence_is_unanswered(play: Play) -> None:
    """A control event without receipt, an event that was not routed and a stranger without dead letter are found."""
    window = play.load.close(lambda sent: False)
    records = play.route(window)
    silent = [r for r in records if r.named not in ("play.receipts", "play.routed", "play.deadletter")]
    told = "\n".join(play.verdict(silent, window).unanswered)
    assert "control event" in told
    assert "neither routed nor refused" in told
    assert "no dead letter" in told
    assert play.judge.routed(window) == 300


def test_what_is_found_counts_for_the_fault_it_happened_under(play: Play) -> None:
    """Of two faults that are judged together, the second alone is told of an event of its own that is missing."""
    window = play.load.close(lambda sent: False)
    records = play.route(window)
    late = [r for r in records if ".deliver." in r.named and int(r.about["ce_id"]) >= 150]
    lost = next(r for r in late if play.load.events[int(r.about["ce_id"])].type == "q0")
    for record in records:
        if record is not lost:
            play.judge.take(record)
    first, second = play.judge.judge(window, [0, 150])
    assert (first.publications, second.publications) == (150, 150)
    assert not first.missing
    assert second.missing
    play.judge.accept([first, second])
    assert play.judge.judge(window)[0].publications == 0


def test_faults_at_once_are_counted_one_by_one(capsys) -> None:
    """Each has a row and its share of the count; what was published then is counted once."""
    summary(
        [
            Outcome("a+b", 1, Verdict(publications=10), pause_s=1.0),
            Outcome("b", 2, Verdict(publications=5), pause_s=3.0),
        ]
    )
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert [row for row in rows if row[0] in ("a", "b", "all")] == [
        ["a", "1", "0", "10"],
        ["b", "2", "0", "5"],
        ["all", "3", "0", "15"],
    ]


def test_outcomes_are_kept_and_shown_together(tmp_path: Path) -> None:
    """What two runs kept is read back whole, failures and counts included."""
    good = Outcome("kill-worker", 1, Verdict(publications=10, deliveries=20), pause_s=1.5)
    bad = Outcome("redis-stale", 2, Verdict(missing=["event 3"]), findings=["wedged"])
    keep(tmp_path / "pieces" / "a.jsonl", good)
    keep(tmp_path / "pieces" / "b.jsonl", bad)
    assert kept(tmp_path / "pieces") == [good, bad]
    assert [outcome.ok for outcome in kept(tmp_path / "pieces")] == [True, False]


def test_every_configuration_that_a_fault_makes_can_be_read(tmp_path: Path) -> None:
    """However often reductions and cubes change: what a job would refuse tests nothing."""
    deployment = Deployment(NOWHERE, tmp_path / "some", "p", SHORT)  # type: ignore[arg-type]
    scene: Any = SimpleNamespace(deployment=deployment, job=SimpleNamespace(alive=True, stop=lambda: 0))
    seen = set()
    for kind in ["config-cubes", "config-reduction"] * 12:
        KINDS[kind].strike(scene)
        seen |= {(t.reduction, t.cubes) for t in load(deployment.path).types.values()}
    assert {cubes for _, cubes in seen} == {2, 4, 8, 16}
    assert {reduction for reduction, _ in seen} == {reduction for reduction, _ in VARIANTS}
