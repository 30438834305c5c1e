"""The consumers of one transport, whichever client makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

C = TypeVar("C", bound=Any)
G = TypeVar("G")


class Consumers(Generic[G, C]):
    """One consumer for each group, made when it is first asked for.

    >>> made = Consumers(lambda group: [group])
    >>> made.of("a") is made.of("a"), made.of("a") is made.of("b")
    (True, False)
    """

    def __init__(self, make: Callable[[G], C]) -> None:
        self._make = make
        self._made: dict[G, C] = {}

    def of(self, group: G) -> C:
        if group not in self._made:
            self._made[group] = self._make(group)
        return self._made[group]

    def close(self) -> None:
        """Close those that were made; who asks again gets others."""
        made, self._made = self._made, {}
        for consumer in made.values():
            consumer.close()
