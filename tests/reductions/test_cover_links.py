"""Who covers whom: the same as dicts of lists, whatever comes, goes and moves."""

from __future__ import annotations

from random import Random

import numpy as np

from state.reductions.cover_links import CoverLinks

ROWS = 12


def test_links_are_what_lists_are() -> None:
    """Groups given, changed, left and handed down, rows written anew: the same groups in the same order."""
    random, links = Random(1), CoverLinks()
    groups: dict[int, list[int]] = {}
    done = dict.fromkeys(("link", "cut", "leave", "stand in", "regroup", "heirs move", "coverers move"), 0)
    for _ in range(3_000):
        heir, coverer = random.randrange(ROWS), random.randrange(ROWS)
        some = random.sample(range(ROWS), random.randrange(1, 5))
        holding = [each for each, group in groups.items() if coverer in group]
        step = random.choice(list(done))
        done[step] += 1
        if step == "link" and not groups.get(heir):
            links.link_all(np.array([heir]), np.array(some), np.array([len(some)]))
            groups[heir] = some
        elif step == "cut":
            links.cut(heir)
            groups.pop(heir, None)
        elif step == "leave":
            assert sorted(links.leave(coverer).tolist()) == sorted(holding)
            groups = {each: [c for c in group if c != coverer] for each, group in groups.items()}
        elif step == "stand in" and coverer not in some:
            assert sorted(links.stand_in(coverer, np.array(some)).tolist()) == sorted(holding)
            for each in holding:
                at = groups[each].index(coverer)
                groups[each] = list(dict.fromkeys([*groups[each][:at], *some, *groups[each][at + 1 :]]))
        elif step == "regroup":
            links.regroup(np.array([heir]), np.array(some), np.array([len(some)]))
            groups[heir] = some
        elif step == "heirs move":
            # Each row once and its place below: the last ones, which nobody has, are left out.
            live = np.array([row for row in range(ROWS) if groups.get(row)], np.int64)
            links.followed = live.copy()
            links.heirs_moved(live, 2 * ROWS)
            assert links.followed.tolist() == list(range(len(live)))
            groups = {place: groups[row] for place, row in enumerate(live.tolist())}
        elif step == "coverers move":
            live = np.unique([c for group in groups.values() for c in group]).astype(np.int64)
            links.coverers_moved(live, 2 * ROWS)
            places = {row: place for place, row in enumerate(live.tolist())}
            groups = {each: [places[c] for c in group] for each, group in groups.items()}
        links.check()
        heirs = np.arange(ROWS)
        members, ends = links.groups_of(heirs)
        assert [each.tolist() for each in np.split(members, ends[:-1])] == [
            groups.get(each, []) for each in range(ROWS)
        ]
        assert len(links) == sum(map(len, groups.values()))
    assert min(done.values()) > 100
