"""Each must of the protocol holds, and a deliberate mutant of the code fails its check."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.control import musts

MUTANTS = [
    # check, module, the code as it is, the code broken
    (musts.home_alone_decides_what_is_stale, "home", "version <= last:", "version < 0:"),
    (musts.old_cubes_forget_a_replaced_filter, "home", "if part not in parts:", "if False:"),
    (musts.a_replacement_keeps_its_kind_of_key, "home", "live.wide if live else None", "None"),
    (musts.what_is_older_is_ignored, "part", "if here <= (generation, sequence):", "if False:"),
    (musts.a_gap_asks_for_a_snapshot, "part", "(not opens and here != (generation, sequence + 1))", "False"),
    (musts.a_gap_asks_for_a_snapshot, "part", "for source in sorted(self.resyncs):", "for source in ():"),
    (musts.a_change_in_parts_is_one_step, "part", "if len(parts) < message.parts:", "if False:"),
    (musts.a_snapshot_replaces_what_was_said_before, "part", "if id not in kept]", "if False]"),
    (musts.another_grid_is_not_understood, "part", "if message.grid != self.dialect:", "if False:"),
    (musts.removals_travel_in_the_last_part, "protocol", "last = i == len(chunks) - 1", "last = i == 0"),
    (musts.promoted_before_removed_in_one_step, "part", "if snapshot else delta.added", "if snapshot else {}"),
    (musts.a_new_generation_opens_with_snapshots, "rebuild", "    _greet(key, cube, context, rebuilt)\n", ""),
    (musts.records_are_applied_in_order, "handle", "sorted(records, key=lambda r: r.place)", "records"),
    (musts.a_replay_writes_the_same_bytes, "handle", "sorted(records, key=lambda r: r.place)", "records"),
    (musts.a_replay_of_the_inbox_is_not_new, "home", "record.offset <= known.offset:", "False:"),
    (musts.every_part_has_an_entry, "rebuild", "in index_keys(context.config, context.hosts)", "in []"),
    (musts.a_pruned_filter_is_told_wider_and_delivered_exactly, "home", "  pack(boxes),", "  pack(told),"),
    (musts.a_pruned_filter_is_told_wider_and_delivered_exactly, "part", "(local.told)", "(local.geometry)"),
    (musts.conformance_asks_the_advertisement_as_sent, "home", " to_text(tree), p", " travelling or to_text(tree), p"),
    (musts.pruning_does_not_spread_a_filter, "home", "return not is_wide(touched,", "return True or (touched,"),
    (musts.what_was_told_of_a_pruned_filter_goes_with_it, "home", "parts = parts", "parts = list(placement.boxes)"),
    (musts.room_undoes_prunings, "travelling", "        self._undo()", "        pass"),
    (musts.a_snapshot_tells_what_travels, "home", ".text if slot in self.state.travelling", ".text if False"),
]  # fmt: skip
REDIS_MUTANTS = [
    (musts.redis_refuses_what_is_older, "return 0", "local ignored = 0"),
    (musts.redis_of_another_life_does_not_count, "version.run != run or ", ""),
    (musts.redis_of_another_life_does_not_count, " or version.generation != generation", ""),
    (musts.damage_is_noticed, "digest_size=8).digest() != sealed[:8]:", "digest_size=8).digest() == b'':"),
]
MODULES = ["protocol", "home", "part", "handle", "rebuild"]


class Mutant:
    """The broker's modules with one of them broken, for the length of a `with`."""

    def __init__(self, module, old, new):
        self.module, self.old, self.new = module, old, new

    def __enter__(self):
        self.modules = [importlib.import_module(name) for name in self.names()]
        self.saved = [dict(vars(module)) for module in [*self.modules, musts, self.world()]]
        source = inspect.getsource(self.modules[0])
        assert self.old in source, "the mutant no longer fits the code: bring it up to date"
        code = compile(source.replace(self.old, self.new), self.modules[0].__file__, "exec")
        before = dict(vars(self.modules[0]))
        exec(code, vars(self.modules[0]))
        changed = {k: v for k, v in vars(self.modules[0]).items() if k[0] != "_" and v is not before.get(k)}
        for other in [*self.modules[1:], musts, self.world()]:
            for name, value in changed.items():
                if vars(other).get(name) is before.get(name) and name in vars(other):
                    setattr(other, name, value)
        return self

    def names(self):
        if "." in self.module:
            return [self.module]
        return [f"state.control.{n}" for n in [self.module, *(m for m in MODULES if m != self.module)]]

    def world(self):
        return importlib.import_module("tests.simulation.world")

    def __exit__(self, *_):
        for module, saved in zip([*self.modules, musts, self.world()], self.saved, strict=True):
            vars(module).clear()
            vars(module).update(saved)


@pytest.mark.parametrize("check", musts.PURE, ids=lambda check: check.__name__)
def test_must(check):
    """The code as it is keeps this must."""
    check()


@pytest.mark.parametrize(
    ("check", "module", "old", "new"), MUTANTS, ids=[f"{c.__name__}-{m}" for c, m, _, _ in MUTANTS]
)
def test_mutant_is_caught(check, module, old, new):
    """The code broken on purpose fails the check of its must."""
    with Mutant(module, old, new), pytest.raises(Exception):  # noqa: B017 any failure catches it
        check()


@pytest.mark.services
@pytest.mark.parametrize("check", musts.ON_REDIS, ids=lambda check: check.__name__)
def test_must_on_redis(check, services, unique):
    """The index in a real Redis keeps this must."""
    check(services.redis, unique)


@pytest.mark.services
@pytest.mark.parametrize(("check", "old", "new"), REDIS_MUTANTS)
def test_mutant_on_redis_is_caught(check, old, new, services, unique):
    """The index code broken on purpose fails the check of its must."""
    with Mutant("state.redis_index", old, new), pytest.raises(AssertionError):
        check(services.redis, unique)
