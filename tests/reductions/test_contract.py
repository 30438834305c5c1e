"""The contract suite judged by itself: it passes an honest reduction and fails each way of being wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from state.errors import HilcastError
from state.formats import opened, unreadable
from state.reductions.reduction import Decision, Delta, Fate
from state.space.boxes import Boxes
from state.space.packing import Geometry
from tests.reductions.contract import BoxSpace, Contract, machine


class ForwardAll:
    """The plainest honest reduction: forward everything."""

    def __init__(self) -> None:
        self.live: dict[str, Geometry] = {}

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        for entry in added.values():
            assert isinstance(entry, Boxes)
            sizes = [SPACE.points(entry.take([row])) for row in range(len(entry))]
            assert len(SPACE.points(entry)) == sum(map(len, sizes)), "the boxes of one entry overlap"
        gone = tuple(sorted({id for id in removed if id in self.live and id not in added}))
        new = {id: added[id] for id in sorted(added) if self.live.get(id) != added[id]}
        self.live = {id: entry for id, entry in (self.live | new).items() if id not in gone}
        return Delta(new, gone)

    def decide(self, entry: Geometry) -> Decision:
        return Decision(covered=False, reason="everything is forwarded")

    def forwarded(self) -> dict[str, Geometry]:
        return dict(self.live)

    def fate(self, id: str) -> Fate:
        return Fate("forwarded")

    def fates(self, ids: Sequence[str]) -> dict[str, Fate]:
        return {id: self.fate(id) for id in ids}

    def stats(self) -> dict[str, int | float]:
        size, n = len(self.encode()), len(self.live)
        return {"entries": n, "forwarded": len(self.forwarded()), "withheld": 0, "bytes": size}

    def check(self) -> None:
        assert None not in self.live

    def encode(self) -> bytes:
        boxes = {id: [e.lows.tolist(), e.highs.tolist()] for id, e in sorted(self.live.items())}
        return b"\x01" + json.dumps(boxes).encode()

    @classmethod
    def decode(cls, blob: bytes) -> ForwardAll:
        made = cls()
        try:
            entries = json.loads(opened("entries", 1, blob))
        except json.JSONDecodeError as error:
            raise unreadable("entries", str(error)) from error
        for id, (lows, highs) in entries.items():
            made.live[id] = Boxes.of(list(zip(lows, highs, strict=True)), d=2)
        return made


class Forgets(ForwardAll):
    """Does not forward what is asked for under the id `c`."""

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        delta = super().update(added, removed)
        kept = {id: entry for id, entry in delta.added.items() if id != "c"}
        return Delta(kept, tuple(id for id in delta.removed if id != "c"))

    def forwarded(self) -> dict[str, Geometry]:
        return {id: entry for id, entry in self.live.items() if id != "c"}


class KeepsTheOld(ForwardAll):
    """Never tells the neighbour to remove anything."""

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        return Delta(super().update(added, removed).added)


class KeepsTheCovered(ForwardAll):
    """Does not tell the neighbour to remove what leaves in one step with an entry that covers it."""

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        before = dict(self.live)
        delta = super().update(added, removed)
        sets = {id: SPACE.points(before[id]) for id in delta.removed}
        left = [id for id in sets if not any(other != id and sets[id] <= sets[other] for other in sets)]
        return Delta(delta.added, tuple(left))


class SendsAgain(ForwardAll):
    """Sends what the neighbour holds."""

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        delta = super().update(added, removed)
        return Delta(dict(delta.added) | {id: added[id] for id in sorted(added)}, delta.removed)


class BoastsCovered(ForwardAll):
    """Says "covered" for everything."""

    def decide(self, entry: Geometry) -> Decision:
        return Decision(covered=True)


class FalseWitness(ForwardAll):
    """Gives a witness without looking."""

    def decide(self, entry: Geometry) -> Decision:
        return Decision(covered=False, witness=(0, 0))


class NamesStrangers(ForwardAll):
    """Says that what it forwards is covered by somebody else."""

    def fate(self, id: str) -> Fate:
        return Fate("covered", ("somebody",))


class CarriesNothing(ForwardAll):
    """Says that everything is covered by the first entry."""

    def fate(self, id: str) -> Fate:
        return Fate("covered", (next(iter(self.live)),))


class ReadsHalf(ForwardAll):
    """Takes state that was cut short for an empty one."""

    @classmethod
    def decode(cls, blob: bytes) -> ReadsHalf:
        made = cls()
        with suppress(HilcastError):
            made.live = ForwardAll.decode(blob).live
        return made


class TakesOverlaps(ForwardAll):
    """Takes an entry that overlaps itself."""

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        with suppress(AssertionError):
            return super().update(added, removed)
        return Delta()


class RemovesTwice(ForwardAll):
    """Tells the neighbour to remove an entry as often as it was told so itself."""

    def update(self, added: Mapping[str, Geometry], removed: Iterable[str] = ()) -> Delta:
        asked = list(removed)
        delta = super().update(added, asked)
        return Delta(delta.added, tuple(id for id in asked if id in delta.removed))


class LosesInState(ForwardAll):
    """Drops the entry `a` when decoded."""

    @classmethod
    def decode(cls, blob: bytes) -> LosesInState:
        made = cls()
        made.live = {id: entry for id, entry in ForwardAll.decode(blob).live.items() if id != "a"}
        return made


class HashOrder(ForwardAll):
    """Lets the order of a set into its bytes."""

    def encode(self) -> bytes:
        return super().encode() + ",".join({f"id-{id}" for id in self.live}).encode()


SPACE = BoxSpace((0, 0), (3, 3))
CONTRACT = Contract(make=ForwardAll, decode=ForwardAll.decode, space=SPACE, examples=25)
HASH_ORDER = Contract(make=HashOrder, decode=HashOrder.decode, space=SPACE)

TestForwardAll = machine(CONTRACT).TestCase


WRONG = [
    Forgets, KeepsTheOld, KeepsTheCovered, SendsAgain, BoastsCovered, FalseWitness, NamesStrangers, CarriesNothing,
    ReadsHalf, TakesOverlaps, RemovesTwice, LosesInState,
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_the_suite_fails_what_is_wrong(wrong: type[ForwardAll]) -> None:
    """Each broken reduction is caught."""
    suite = machine(Contract(make=wrong, decode=wrong.decode, space=SPACE))
    enough = settings(
        suite.TestCase.settings,
        max_examples=200,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_state_machine_as_test(suite, settings=enough)
