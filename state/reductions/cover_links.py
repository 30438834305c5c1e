"""Who covers whom, in flat arrays: of each withheld entry its group, of each active entry those in whose group it is.

    groups   by row of the withheld        link   heir, coverer,        next of the heir's group,
    covers   by row of the active                 next and before it among the coverer's

A link stands in both lists, so that either entry leaves at the cost of its own links, and kernels walk them without an
id. An entry is known by its first row in its `EntryRows`; when these are written anew, links follow.
"""

from __future__ import annotations

import numpy as np

from state.arrays import Ints
from state.kernels import njit
from state.reductions.row_tree import Links

HEIR, COVERER, NEXT, AFTER, BEFORE = 0, 1, 2, 3, 4
FREE, USED, COUNT = 0, 1, 2
"""Of `state`: the first link to be used again, how many were ever used at a time, and how many there are."""
NONE = -1
_ROOM_MIN = 16
_COLUMNS = 8
"""Of a link, two in a line of the cache."""
_LINK_BYTES = 8
"""Of a link, where bytes are told: a number of four bytes at either end."""


@njit
def _link(links: Links, groups: Ints, covers: Ints, state: Ints, heir: int, members: Ints) -> None:
    """Give a withheld entry that has no group one, in this order; there is room."""
    for at in range(len(members) - 1, -1, -1):
        link, coverer = state[FREE], members[at]
        if link == NONE:
            link = state[USED]
            state[USED] += 1
        else:
            state[FREE] = links[link, NEXT]
        following = covers[coverer]
        links[link, HEIR], links[link, COVERER], links[link, NEXT] = heir, coverer, groups[heir]
        links[link, AFTER], links[link, BEFORE] = following, NONE
        if following != NONE:
            links[following, BEFORE] = link
        groups[heir] = covers[coverer] = link
    state[COUNT] += len(members)


@njit
def _leave(links: Links, covers: Ints, state: Ints, link: int) -> None:
    """Take a link out of its coverer's list; it can be used again. The heir's list is the caller's."""
    before, after = links[link, BEFORE], links[link, AFTER]
    if before == NONE:
        covers[links[link, COVERER]] = after
    else:
        links[before, AFTER] = after
    if after != NONE:
        links[after, BEFORE] = before
    links[link, NEXT], state[FREE] = state[FREE], link
    state[COUNT] -= 1


@njit
def _cut(links: Links, groups: Ints, covers: Ints, state: Ints, heir: int) -> None:
    """A withheld entry has no group any more."""
    link = groups[heir]
    while link != NONE:
        following = links[link, NEXT]
        _leave(links, covers, state, link)
        link = following
    groups[heir] = NONE


@njit
def group_of(links: Links, groups: Ints, heir: int) -> Ints:
    """The coverers of a withheld entry, in their order."""
    link, count = groups[heir], 0
    while link != NONE:
        count, link = count + 1, links[link, NEXT]
    members = np.empty(count, np.int64)
    link = groups[heir]
    for i in range(count):
        members[i], link = links[link, COVERER], links[link, NEXT]
    return members


@njit
def _heirs_of(links: Links, covers: Ints, coverer: int) -> Ints:
    link, count = covers[coverer], 0
    while link != NONE:
        count, link = count + 1, links[link, AFTER]
    heirs = np.empty(count, np.int64)
    link = covers[coverer]
    for i in range(count):
        heirs[i], link = links[link, HEIR], links[link, AFTER]
    return heirs


@njit
def _take(links: Links, groups: Ints, covers: Ints, state: Ints, coverer: int) -> Ints:
    """An active entry leaves all groups; whose those are."""
    heirs = _heirs_of(links, covers, coverer)
    for heir in heirs:
        link, last = groups[heir], NONE
        while links[link, COVERER] != coverer:
            last, link = link, links[link, NEXT]
        following = links[link, NEXT]
        if last == NONE:
            groups[heir] = following
        else:
            links[last, NEXT] = following
        _leave(links, covers, state, link)
    return heirs


@njit
def _link_all(links: Links, groups: Ints, covers: Ints, state: Ints, heirs: Ints, members: Ints, ends: Ints) -> None:
    begin = 0
    for i in range(len(heirs)):
        _link(links, groups, covers, state, heirs[i], members[begin : ends[i]])
        begin = ends[i]


@njit
def _regroup_one(links: Links, groups: Ints, covers: Ints, state: Ints, heir: int, members: Ints) -> None:
    """Give a withheld entry another group. Links that stay are not touched: their neighbours are far off in memory."""
    kept = np.full(len(members), NONE, np.int64)
    link = groups[heir]
    while link != NONE:
        following, stays = links[link, NEXT], False
        for at in range(len(members)):
            if links[link, COVERER] == members[at]:
                kept[at], stays = link, True
                break
        if not stays:
            _leave(links, covers, state, link)
        link = following
    groups[heir] = NONE
    for at in range(len(members) - 1, -1, -1):
        if kept[at] == NONE:
            _link(links, groups, covers, state, heir, members[at : at + 1])
        else:
            links[kept[at], NEXT] = groups[heir]
            groups[heir] = kept[at]


@njit
def _regroup(links: Links, groups: Ints, covers: Ints, state: Ints, heirs: Ints, members: Ints, ends: Ints) -> None:
    begin = 0
    for i in range(len(heirs)):
        _regroup_one(links, groups, covers, state, heirs[i], members[begin : ends[i]])
        begin = ends[i]


@njit
def _groups_of(links: Links, groups: Ints, heirs: Ints) -> tuple[Ints, Ints]:
    ends, count = np.empty(len(heirs), np.int64), 0
    for i in range(len(heirs)):
        link = groups[heirs[i]]
        while link != NONE:
            count, link = count + 1, links[link, NEXT]
        ends[i] = count
    members, at = np.empty(count, np.int64), 0
    for heir in heirs:
        link = groups[heir]
        while link != NONE:
            members[at], at, link = links[link, COVERER], at + 1, links[link, NEXT]
    return members, ends


@njit
def _stand_in(links: Links, groups: Ints, covers: Ints, state: Ints, coverer: int, group: Ints) -> Ints:
    """Wherever an active entry was in a group, others stand in its place, each once; whose groups those were."""
    heirs = _heirs_of(links, covers, coverer)
    for heir in heirs:
        before = group_of(links, groups, heir)
        members, count = np.empty(len(before) + len(group), np.int64), 0
        for member in before:
            if member != coverer:
                if not (members[:count] == member).any():
                    members[count] = member
                    count += 1
                continue
            for other in group:
                if not (members[:count] == other).any():
                    members[count] = other
                    count += 1
        _regroup_one(links, groups, covers, state, heir, members[:count])
    return heirs


@njit
def _moved(links: Links, heads: Ints, side: int, following: int, live: Ints, room: int) -> Ints:
    """The lists by row once the rows `live` stand one after another, with room for so many."""
    moved = np.full(room, NONE, np.int64)
    for row in range(len(live)):
        moved[row] = link = heads[live[row]]
        while link != NONE:
            links[link, side] = row
            link = links[link, following]
    return moved


class CoverLinks:
    """The groups of the withheld entries of one reduction; rows of the withheld are *heirs*, of the active *coverers*.

    Cost: an entry comes and goes at the cost of its own links, and of the groups that it was in; compiled.

    >>> links = CoverLinks()
    >>> links.link_all(np.array([0, 3]), np.array([5, 7, 5]), np.array([2, 3]))
    >>> links.group(0).tolist(), sorted(links.leave(5).tolist()), links.group(0).tolist(), len(links)
    ([5, 7], [0, 3], [7], 1)
    """

    def __init__(self) -> None:
        self._links = np.empty((_ROOM_MIN, _COLUMNS), np.int32)
        self._groups, self._covers = np.full(_ROOM_MIN, NONE), np.full(_ROOM_MIN, NONE)
        self._state = np.array([NONE, 0, 0])
        self.followed = np.empty(0, np.int64)
        """Rows of withheld entries that somebody goes through while rows may move."""

    def __len__(self) -> int:
        return int(self._state[COUNT])

    @property
    def bytes(self) -> int:
        return _LINK_BYTES * len(self)

    @property
    def groups(self) -> tuple[Links, Ints]:
        """What kernels walk: links, and the first of each group."""
        return self._links, self._groups

    # --- changes

    def link(self, heir: int, members: Ints) -> None:
        """Give a withheld entry that has none its group."""
        self._make_room(len(members))
        _link(self._links, self._groups, self._covers, self._state, heir, members)

    def link_all(self, heirs: Ints, members: Ints, ends: Ints) -> None:
        """The same for many; the group of each ends there among the members."""
        self._make_room(len(members))
        _link_all(self._links, self._groups, self._covers, self._state, heirs, members, ends)

    def regroup(self, heirs: Ints, members: Ints, ends: Ints) -> None:
        """Give many other groups than they have, where these are others."""
        self._make_room(len(members))
        _regroup(self._links, self._groups, self._covers, self._state, heirs, members, ends)

    def cut(self, heir: int) -> None:
        """A withheld entry leaves."""
        _cut(self._links, self._groups, self._covers, self._state, heir)

    def leave(self, coverer: int) -> Ints:
        """An active entry leaves the groups that it was in; whose they are."""
        return _take(self._links, self._groups, self._covers, self._state, coverer)

    def stand_in(self, coverer: int, group: Ints) -> Ints:
        """An active entry leaves, and its own group stands in for it; in whose groups."""
        self._make_room(len(group) * len(_heirs_of(self._links, self._covers, coverer)))
        return _stand_in(self._links, self._groups, self._covers, self._state, coverer, group)

    def _make_room(self, more: int) -> None:
        # Links that can be used again are not counted: what is there twice at most is room.
        needed = int(self._state[USED]) + more
        if needed > len(self._links):
            longer = np.empty((2 * needed, _COLUMNS), np.int32)
            longer[: len(self._links)] = self._links
            self._links = longer

    def heirs_moved(self, live: Ints, room: int) -> None:
        """The rows of withheld entries are written anew: these, one after another."""
        self._groups = _moved(self._links, self._groups, HEIR, NEXT, live, room)
        self.followed = np.searchsorted(live, self.followed)

    def coverers_moved(self, live: Ints, room: int) -> None:
        """The rows of active entries are written anew."""
        self._covers = _moved(self._links, self._covers, COVERER, AFTER, live, room)

    # --- questions

    def group(self, heir: int) -> Ints:
        """The coverers of a withheld entry, in their order."""
        return group_of(self._links, self._groups, heir)

    def groups_of(self, heirs: Ints) -> tuple[Ints, Ints]:
        """The coverers of each, and where those of each end."""
        return _groups_of(self._links, self._groups, heirs)

    def heirs(self, coverer: int) -> Ints:
        """In whose groups an active entry is."""
        return _heirs_of(self._links, self._covers, coverer)

    def check(self) -> None:
        """Assert: both lists tell the same, and no more links than counted."""
        heirs, coverers = (np.flatnonzero(heads != NONE).tolist() for heads in (self._groups, self._covers))
        pairs = [(heir, member) for heir in heirs for member in self.group(heir).tolist()]
        others = [(heir, coverer) for coverer in coverers for heir in self.heirs(coverer).tolist()]
        assert sorted(pairs) == sorted(others)
        assert len(pairs) == len(set(pairs)) == len(self)
