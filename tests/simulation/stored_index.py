"""The index of one part as Redis has it, base and deltas, written and read by the rules of `state/index_delta.py`."""

from __future__ import annotations

from collections.abc import Sequence

from state.compiled_part import CompiledPart, load_part
from state.index_delta import Head, amended, decode_delta, led_on


class StoredIndex:
    """What `RedisIndex` keeps of a part, without Redis: the same decisions on the same bytes."""

    def __init__(self, whole: bytes, deltas: Sequence[bytes]) -> None:
        """All of the index was written, beside the deltas that lead to it."""
        self.base = whole
        base = load_part(whole)
        self.head, beside = Head.of(base, deltas)
        self.deltas = list(beside)
        self.part = self._led_from(base)
        """All of the index as it is now; what is appended is taken in by itself: to load all of it again costs more."""

    def append(self, deltas: Sequence[bytes], least: int) -> bool:
        """Add deltas; return whether they follow what there is and need no folding, or are there already."""
        read = [decode_delta(delta) for delta in deltas]
        if self.head.stamp == read[-1].stamp:
            return True  # a batch that is repeated
        after = self.head.after(read, sum(map(len, deltas)), least)
        if after is None:
            return False
        self.head = after
        self.deltas += deltas
        lead = led_on(self.part.stamp, read)
        assert lead is not None, "what is appended does not lead on"
        self.part = amended(self.part, lead)
        return True

    def follow(self, stamp: bytes | None) -> tuple[CompiledPart | None, Sequence[bytes]]:
        """What leads on from what is held, with nothing before it; or all of it."""
        read = [decode_delta(delta) for delta in self.deltas]
        lead = None if stamp is None else led_on(stamp, read)
        if lead is not None and (lead or stamp == self.head.stamp):
            return None, self.deltas[len(read) - len(lead) :]
        return self.whole(), ()

    def whole(self) -> CompiledPart:
        """All of the index, as who has nothing of it reads it."""
        return self._led_from(load_part(self.base))

    def _led_from(self, part: CompiledPart) -> CompiledPart:
        lead = led_on(part.stamp, [decode_delta(delta) for delta in self.deltas])
        assert lead is not None, "base and deltas do not fit each other"
        return amended(part, lead)
