"""How far the index in Redis has been written, so that an older one is known when it is met again.

Every write of the index counts one up, in the same script that writes it. The count belongs to a *lineage*: where it is
lost, the next write begins another one, under a name that nobody has used. After each control batch the driver commits
generation, run, lineage and count to Kafka, together with the offsets that `hilcast wait` goes by; whoever routes
compares. A Redis that was demoted, cut off, or put back from a copy may answer with a whole index; it is not taken.

    committed   3, run r, lineage x, 41 writes
    in Redis    3, run r, lineage x, 44 writes     go on: what came since is newer
                3, run r, lineage x, 38 writes     behind: it lacks what was said to be in force
                3, run r, lineage w, 90 writes     behind: of a time before this lineage began
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from state.keys import Key
from state.redis_index import WRITES, Version


class Mark(NamedTuple):
    """How far an index has been written."""

    generation: int
    writes: int
    lineage: str
    run: str

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Mark:
        """The mark that this text stands for.

        >>> Mark.parse(str(Mark(3, 41, "x", "r-1.2")))
        Mark(generation=3, writes=41, lineage='x', run='r-1.2')
        """
        generation, writes, lineage, run = text.split(".", 3)
        return cls(int(generation), int(writes), lineage, run)

    @classmethod
    def of(cls, generation: int, run: str, vector: Mapping[str, Version]) -> Mark:
        """The mark of an index, by its version vector; one that nothing was written to has no lineage."""
        writes = vector.get(WRITES)
        return cls(generation, 0, "", run) if writes is None else cls(generation, writes.batch, writes.run, run)

    def is_behind(self, committed: Mark | None) -> bool:
        """Whether this index lacks something that was said to be in force.

        >>> here = Mark(3, 41, "x", "r")
        >>> [here.is_behind(Mark(3, n, "x", "r")) for n in (40, 41, 42)], here.is_behind(Mark(2, 99, "w", "r"))
        ([False, False, True], False)
        """
        if committed is None or committed.generation < self.generation:
            return False
        same = (self.generation, self.lineage, self.run) == (committed.generation, committed.lineage, committed.run)
        return not same or self.writes < committed.writes


class Marks:
    """What the driver commits: the mark of the index in force, which never goes back."""

    def __init__(self) -> None:
        self.committed: Mark | None = None
        self._past: set[tuple[int, str, str]] = set()
        """Generations, lineages and runs that were given up: whatever is of one of them is old."""

    def take(self, found: Mark, whole: bool) -> bool:
        """Take notice of what Redis holds, and whether that is whole; False if it is older than what was committed.

        Of another lineage only a whole index counts: until then it is being written.
        """
        last = self.committed
        if last is None or found.generation > last.generation:
            self.committed = found if whole else last
            return True
        if (found.generation, found.lineage, found.run) in self._past or found.generation < last.generation:
            return False
        if (found.lineage, found.run) == (last.lineage, last.run):
            if found.writes < last.writes:
                return False
            self.committed = found
        elif whole:
            self._past.add((last.generation, last.lineage, last.run))
            self.committed = found
        return True


def is_whole(run: str, vector: Mapping[str, Version], keys: Iterable[Key]) -> bool:
    """Whether every part is there, written under the Redis that is up now."""
    return all((version := vector.get(str(key))) is not None and version.run == run for key in keys)
