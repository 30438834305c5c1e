"""What clients asked for, by the contract alone: who must get an event, who may, and how each input is answered.

Written without the core: versions, repeats and withdrawals as in docs/messages.md, deliveries by flooding. While a
change is on its way several states of a key are possible; a publication is judged by all of them:

    states of a key since the last rest       old filter, new filter, gone, ...
    must be delivered                         if every one of them holds
    may be delivered                          if any of them holds

What stands unchanged has one state, so it must get everything it matches at every moment; of a filter that is being
replaced, what matches old and new must come and what matches neither must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

Holds = Callable[[str, str, Mapping[str, object]], bool]
"""Whether an event of this type satisfies this filter text."""
Name = tuple[str, str, str]
"""Broker, type, id."""
Copy = tuple[str, str, str]
"""Client, destination ("" is its own topic), id."""


@dataclass(frozen=True)
class Live:
    """One state of a key: what its owner asked for."""

    owner: str
    filter: str
    sink: str | None = None
    ttl_ms: int | None = None


@dataclass(frozen=True)
class Answer:
    """How an input must be answered: one of these kinds, at this version; refused with this code."""

    kinds: frozenset[str]
    version: int | None
    code: str | None = None


@dataclass
class Account:
    """Everything about one key."""

    version: int
    states: list[Live | None]
    last: Live | None
    """What the last accepted event said; None if it withdrew."""

    @property
    def live(self) -> Live | None:
        """Where it will be at rest."""
        return self.states[-1]


@dataclass(frozen=True)
class Expected:
    """Who gets an event. `must`: of each group at least one copy; `may`: no other copy."""

    must: tuple[frozenset[Copy], ...]
    may: frozenset[Copy]
    admitted: bool | None
    """Whether its publisher's advertisements let it in; None: either is right."""


@dataclass
class Ledger:
    """Accounts of subscriptions and advertisements."""

    holds: Holds
    subscriptions: dict[Name, Account] = field(default_factory=dict)
    advertisements: dict[Name, Account] = field(default_factory=dict)

    def accounts(self, advertisement: bool) -> dict[Name, Account]:
        return self.advertisements if advertisement else self.subscriptions

    # ── inputs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def take(
        self, advertisement: bool, name: Name, asked: Live | None, version: int | None, most: int | None = None
    ) -> Answer:
        """Enter a well-formed registration, or with None a withdrawal; say how it must be answered.

        `most`: how many its client may have of the kind at one broker and of one type.
        """
        accounts = self.accounts(advertisement)
        known = accounts.get(name)
        if known is not None and version is not None and version <= known.version:
            if version < known.version or asked != known.last:
                return Answer(frozenset({"refused"}), version, "stale-version")
            # a repeat extends nothing; what became of the original meanwhile is its answer
            kinds = {"withdrawn"} if asked is None else {"accepted", "expired"}
            return Answer(frozenset(kinds), known.version)
        new = asked is not None and (known is None or known.live is None)
        if new and most is not None and self._live(advertisement, name) >= most:
            return Answer(frozenset({"refused"}), version, "over-quota")
        version = version if version is not None else max(0, known.version if known else 0) + 1
        before = known.states if known is not None else [None]
        accounts[name] = Account(version, [*before, asked], asked)
        return Answer(frozenset({"withdrawn"} if asked is None else {"accepted", "replaced"}), version)

    def _live(self, advertisement: bool, name: Name) -> int:
        """How many the client of a name has at its broker and of its type."""
        broker, type_name, id = name
        return sum(
            account.live is not None
            for (b, t, other), account in self.accounts(advertisement).items()
            if (b, t, other.split(":")[0]) == (broker, type_name, id.split(":")[0])
        )

    def expire(self, advertisement: bool, name: Name) -> int | None:
        """End a key whose time to live has passed; return the version that ends, if there is one."""
        account = self.accounts(advertisement).get(name)
        if account is None or account.live is None or account.live.ttl_ms is None:
            return None
        account.states.append(None)
        return account.version

    def forget(self, advertisement: bool, name: Name) -> int | None:
        """Let the version of something withdrawn be forgotten; return that version."""
        account = self.accounts(advertisement).get(name)
        if account is None or account.states != [None]:
            return None
        del self.accounts(advertisement)[name]
        return account.version

    def rest(self) -> None:
        """Nothing is on its way any more: each key has the one state it ends at."""
        for accounts in (self.subscriptions, self.advertisements):
            for account in accounts.values():
                account.states = account.states[-1:]

    def mark(self) -> dict[tuple[bool, Name], int]:
        """How many states each key has now: the mark that a fence is set by."""
        kinds = ((False, self.subscriptions), (True, self.advertisements))
        return {(ad, name): len(account.states) for ad, accounts in kinds for name, account in accounts.items()}

    def fence(self, mark: Mapping[tuple[bool, Name], int]) -> None:
        """Everything up to a mark is in force: of each key only the last state before it, and later ones, can be."""
        for (advertisement, name), n in mark.items():
            account = self.accounts(advertisement)[name]
            account.states = account.states[n - 1 :]

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def expected(
        self, type_name: str, broker: str, source: str, event: Mapping[str, object], advertised: bool | None
    ) -> Expected:
        """Who gets an event that enters at `broker`.

        `advertised`: whether publishers of this type must advertise; None: that is changing right now.
        """
        admitted: bool | None = True
        if advertised is not False:
            admitted = self._admitted(type_name, broker, source, event)
            if advertised is None and not admitted:
                admitted = None
        must, may = [], set()
        for (_, of_type, id), account in self.subscriptions.items():
            if of_type != type_name or admitted is False:
                continue
            copies = [self._copy(id, state, type_name, event) for state in account.states]
            possible = {copy for copy in copies if copy is not None}
            may |= possible
            if possible and None not in copies:
                must.append(frozenset(possible))
        return Expected(tuple(must) if admitted else (), frozenset(may), admitted)

    def _copy(self, id: str, state: Live | None, type_name: str, event: Mapping[str, object]) -> Copy | None:
        if state is None or not self.holds(type_name, state.filter, event):
            return None
        return (state.owner, state.sink or "", id)

    def _admitted(self, type_name: str, broker: str, source: str, event: Mapping[str, object]) -> bool | None:
        """True if an advertisement holds in all its states, False if none does in any, else None."""
        possible: bool | None = False
        for (at, of_type, _), account in self.advertisements.items():
            if (at, of_type) != (broker, type_name):
                continue
            own = [state if state is not None and state.owner == source else None for state in account.states]
            hits = [state is not None and self.holds(type_name, state.filter, event) for state in own]
            if all(hits):
                return True
            if any(hits):
                possible = None
        return possible

    def standing(self, advertisement: bool = False) -> Iterator[tuple[Name, Live]]:
        """What is in force and not being changed."""
        for name, account in self.accounts(advertisement).items():
            if len(account.states) == 1 and account.states[0] is not None:
                yield name, account.states[0]
