"""The errors of hilcast: one small tree, each with a stable code at the head of its message.

A code is what users may rely on (the table of codes in `docs/messages.md`); the rest of the message is for people.
A worker's exception reaches a Spark driver as text only, so the code stands in the text.
"""

from __future__ import annotations


class HilcastError(Exception):
    """Something of the outside world that hilcast cannot use.

    >>> str(HilcastError("bad-key", "not BROKER/TYPE/ID: 'x'"))
    "bad-key: not BROKER/TYPE/ID: 'x'"
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class StateUnreadable(HilcastError):
    """The state of a key that this version cannot go on with: its records are not consumed, a generation must begin.

    >>> str(StateUnreadable("b1/t/cube:3", "of format 9, this reads 1"))
    'state-unreadable: b1/t/cube:3: of format 9, this reads 1'
    """

    CODE = "state-unreadable"

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(self.CODE, f"{key}: {reason}")


class Quarantined(Exception):
    """A record that a query could not be got past: it is not handled any more, as if handling it failed inside."""


class FilterError(HilcastError):
    """A filter that is refused; `position` is the offset of the character at fault, where there is one."""

    def __init__(self, code: str, reason: str, position: int | None = None) -> None:
        super().__init__(code, reason if position is None else f"{reason} (at character {position + 1})")
        self.position = position


class ConfigError(HilcastError):
    """A configuration with faults: all of them at once, each with its place."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("bad-config", "\n  ".join([f"{len(faults)} fault(s)", *faults]))
        self.faults = faults


ENVIRONMENT = (MemoryError, OSError, ImportError)
"""What fails because of where the code runs, not because of what it was given: it is to be tried again."""
