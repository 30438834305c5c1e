"""Each must of the protocol holds, and a deliberate mutant of the code fails its check."""

from __future__ import annotations

import ast

import pytest

from state import redis_index
from tests.control import musts
from tests.control.mutation import Misfit, Mutant, mutated

MUTANTS = [
    # check, module of state.control, function, the expression or statement as it is, and broken
    (musts.home_alone_decides_what_is_stale, "home", "Home._decide", "version <= last", "version < 0"),
    (musts.a_tombstone_keeps_the_version, "home", "Home._withdraw", "version", "0"),
    (musts.old_cubes_forget_a_replaced_filter, "home", "Home._put", "part not in parts", "False"),
    (musts.a_replacement_keeps_its_kind_of_key, "home", "Home._accept", "live.wide if live else None", "None"),
    (musts.only_the_version_that_lapsed_expires, "home", "Home.expire", "fact.version != message.version", "False"),
    (musts.only_a_tombstone_is_forgotten, "home", "Home.forget", "fact.live", "False"),
    (musts.only_a_tombstone_is_forgotten, "home", "Home.forget", "fact.version != message.version", "False"),
    (musts.an_id_may_be_used_for_both_kinds, "facts", "Kind.of", "advertisement", "False"),
    (musts.what_is_older_is_ignored, "streams", "Incoming.take", "here <= (generation, sequence)", "False"),
    (musts.a_gap_asks_for_a_snapshot, "streams", "Incoming.take",
     "not opens and here != (generation, sequence + 1)", "False"),
    (musts.a_gap_asks_for_a_snapshot, "part", "Part.advance", "sorted(self.incoming.gaps)", "()"),
    (musts.a_change_in_pieces_is_one_step, "streams", "Incoming.take", "len(pieces) < message.pieces", "False"),
    (musts.a_snapshot_that_misses_a_piece_is_not_taken, "streams", "Incoming.take",
     "len(pieces) != message.piece", "False"),
    (musts.a_snapshot_fills_the_gap_before_it, "streams", "Incoming.take", "self.gaps.discard(source)", "None"),
    (musts.a_snapshot_replaces_what_was_said_before, "part", "Part._keep_only", "id not in ids", "False"),
    (musts.a_snapshot_replaces_what_was_said_before, "part", "Part._keep_only", "id not in ad_ids", "False"),
    (musts.a_homes_snapshot_leaves_what_other_homes_said, "part", "Part._keep_only",
     "home_shard(id, shards) == origin.number", "True"),
    (musts.another_grid_is_not_understood, "streams", "Incoming.take", "message.grid != self._dialect", "False"),
    (musts.another_deployment_begins_with_a_snapshot, "streams", "Incoming._position",
     "Key.parse(source).broker in self._hosts", "True"),
    (musts.a_request_in_another_dialect_is_not_answered, "part", "Part.resync", "message.grid == self.dialect", "True"),
    (musts.a_request_in_another_dialect_is_not_answered, "home", "Home.resync", "message.grid == self.dialect", "True"),
    (musts.removals_travel_behind_all_additions, "streams", "Outbox.change",
     "additions | {'removed': removed, 'unadvertised': unadvertised}",
     "{'removed': removed, 'unadvertised': unadvertised} | additions"),
    (musts.promoted_before_removed_in_one_step, "part", "Part._told",
     "[Entry(id, _packed(geometry, added.get(id))) for id, geometry in delta.added.items()]", "[]"),
    (musts.nothing_goes_back_where_it_came_from, "part", "_from_others", "interface != neighbour", "True"),
    (musts.only_what_was_advertised_for_goes_there, "selection", "Selection._overlaps",
     "self._side(ADVERTISED, neighbour).first(one)", "True"),
    (musts.only_what_was_advertised_for_goes_there, "selection", "Selection._reached",
     "self._interfaces if now or before else ()", "()"),
    (musts.what_stands_for_others_has_no_words, "part", "Part._told", "id in worded", "False"),
    (musts.a_new_generation_opens_with_snapshots, "rebuild", "greetings", "neighbour not in context.hosts", "False"),
    (musts.records_are_applied_in_order, "handle", "handle", "sorted(records, key=lambda r: r.place)", "records"),
    (musts.a_replay_writes_the_same_bytes, "handle", "handle", "sorted(records, key=lambda r: r.place)", "records"),
    (musts.a_replay_of_the_inbox_is_not_new, "home", "Home._decide", "record.offset <= known.offset", "False"),
    (musts.a_seed_that_comes_again_is_no_new_beginning, "handle", "_handled", "state is None", "True"),
    (musts.only_the_seed_of_this_generation_counts, "streams", "seeded", "seed.generation == generation", "True"),
    (musts.amendments_belong_to_the_beginning, "handle", "_handled",
     "taken.sort(key=lambda one: not isinstance(one.message, Amend))", "None"),
    (musts.amendments_belong_to_the_beginning, "handle", "_handled",
     "[one for one in taken if not isinstance(one.message, Amend)]", "taken"),
    (musts.amendments_belong_to_the_beginning, "handle", "_home",
     "message.generation == context.generation", "True"),
    (musts.every_part_has_an_entry, "rebuild", "parts_of", "index_keys(context.config, context.hosts)", "[]"),
    (musts.a_pruned_filter_is_told_wider_and_delivered_exactly, "home", "Home._entry",
     "pack(sent)", "pack(travelling)"),
    (musts.a_pruned_filter_is_told_wider_and_delivered_exactly, "part", "Part._change",
     "local.travelling", "local.geometry"),
    (musts.conformance_asks_the_advertisement_as_sent, "placement", "Placing.__call__",
     "Placement(True, {}, promised, to_text(sent), True, predicates, wording)",
     "Placement(True, {}, promised, to_text(travelling or sent), True, predicates, wording)"),
    (musts.pruning_does_not_spread_a_filter, "travelling", "Travelling._admits",
     "is_wide(touched, self._type.cubes)", "False"),
    (musts.what_was_told_of_a_pruned_filter_goes_with_it, "home", "Home._put",
     "fact.parts = parts", "fact.parts = list(placement.sent)"),
    (musts.room_undoes_prunings, "travelling", "Travelling.settle", "queue.grow(budget)", "None"),
    (musts.a_snapshot_tells_what_travels, "home", "Home.everything", "self.travelling.form(name)", "None"),
    (musts.a_state_of_another_format_is_not_read, "home", "decode_state", "FORMAT", "blob[0]"),
    (musts.a_state_of_another_format_is_not_read, "part", "opened_state", "FORMAT", "blob[0]"),
    (musts.a_state_of_another_format_is_not_read, "protocol", "decode", "message.format != FORMAT", "False"),
    (musts.a_forged_message_is_not_read, "handle", "_judged", "genuine(record, context.keyring)", "True"),
    (musts.all_that_keys_say_is_signed, "handle", "handle",
     "all_signed(result.outputs, context.topics, context.keyring)", "result.outputs"),
    (musts.the_end_of_a_fact_names_the_fact, "home", "Home.forget", "ending(fact)", "()"),
    (musts.the_end_of_a_fact_names_the_fact, "facts", "ends", "named == ending(fact)", "True"),
    (musts.every_fact_is_written_again_by_its_home, "handle", "_home", "home.renew()", "None"),
    (musts.the_highest_version_can_be_withdrawn, "home", "Home._decide",
     "version > VERSION_MAX and event.withdraw", "False"),
    (musts.the_highest_version_can_be_withdrawn, "home", "Home._decide",
     'raise HilcastError("bad-value", "no version is left above 2^63-1; withdraw it and take another id")', "pass"),
    (musts.an_inbox_that_was_made_again_counts_anew, "home", "Home._counts_alike",
     "known.topic_id == present", "True"),
    (musts.an_inbox_that_was_made_again_counts_anew, "home", "Home._accept",
     "self.context.topic_ids.get(record.topic)", "None"),
    (musts.what_is_quarantined_is_not_handled, "handle", "_refuse_quarantined",
     "any(one.record.place in context.quarantined for one in some)", "False"),
]  # fmt: skip
REDIS_MUTANTS = [
    (musts.redis_of_another_life_does_not_count, "RedisIndex.missing", "version.run != run", "False"),
    (musts.damage_is_noticed, "_opened",
     "hashlib.blake2b(epoch + blob, digest_size=8).digest() != sealed[:8]", "False"),
    (musts.a_forged_index_is_not_used, "_opened",
     "ring.believes(signature, b'index', name.encode(), run.encode(), epoch, blob)", "True"),
    (musts.a_forged_index_is_not_used, "_seal", "run.encode()", "b''"),
    (musts.a_forged_index_is_not_used, "RedisIndex._clear",
     "claimed is not None and self._borne_out(name, generation, run) >= claimed.batch", "True"),
    (musts.a_delta_is_written_on_what_it_was_made_from, "RedisIndex._append",
     "(version.generation, version.run) != (ours.generation, ours.run)", "False"),
    (musts.a_delta_is_written_on_what_it_was_made_from, "RedisIndex._borne_out", "_batch(one[0])", "0"),
    (musts.a_delta_is_written_on_what_it_was_made_from, "RedisIndex.publish_deltas",
     "head.stamp == read[-1].stamp", "False"),
    (musts.a_forged_pointer_is_not_followed, "RedisIndex._genuine",
     "ring.believes(signature, b'pointer', *self._field(field, stored))", "True"),
    (musts.who_knows_a_vector_reads_what_changed, "RedisIndex.look", "run != known.run", "False"),
]  # fmt: skip
WRITES_COUNTED = "redis.call('HSET', KEYS[1], '//writes', string.format('0.%d.%s', count, lineage or ARGV[6]))"
SCRIPTS = [
    (musts.redis_refuses_what_is_older, "_PUBLISH", "return old"),
    (musts.who_was_superseded_writes_nothing, "_PUBLISH", "return generation"),
    (musts.routing_never_goes_back_to_an_older_generation, "_POINT", "return generation"),
    (musts.every_write_counts_one_up, "_PUBLISH", WRITES_COUNTED),
    (musts.a_delta_is_written_on_what_it_was_made_from, "_PUBLISH", "return 'whole'"),
    (musts.who_knows_a_vector_reads_what_changed, "_PUBLISH", "redis.call('ZADD', KEYS[4], count, ARGV[1])"),
]


@pytest.mark.parametrize("check", musts.PURE, ids=lambda check: check.__name__)
def test_must(check):
    """The code as it is keeps this must."""
    check()


@pytest.mark.parametrize(
    ("check", "module", "function", "old", "new"),
    MUTANTS,
    ids=[f"{check.__name__}-{function}" for check, _, function, _, _ in MUTANTS],
)
def test_mutant_is_caught(check, module, function, old, new):
    """The code broken on purpose fails the check of its must."""
    with Mutant(f"state.control.{module}", function, old, new), pytest.raises(Exception) as failure:
        check()
    assert not isinstance(failure.value, NameError | SyntaxError), "the mutant is broken in another way than was meant"


@pytest.mark.services
@pytest.mark.parametrize("check", musts.ON_REDIS, ids=lambda check: check.__name__)
def test_must_on_redis(check, services, unique):
    """The index in a real Redis keeps this must."""
    check(services.redis, unique)


@pytest.mark.services
@pytest.mark.parametrize(("check", "function", "old", "new"), REDIS_MUTANTS)
def test_mutant_on_redis_is_caught(check, function, old, new, services, unique):
    """The index code broken on purpose fails the check of its must."""
    with Mutant("state.redis_index", function, old, new), pytest.raises(AssertionError):
        check(services.redis, unique)


@pytest.mark.services
@pytest.mark.parametrize(("check", "script", "statement"), SCRIPTS)
def test_mutant_of_a_script_is_caught(monkeypatch, check, script, statement, services, unique):
    """A script that Redis runs, broken on purpose, fails the check of its must; it is Lua, so a statement goes."""
    text = getattr(redis_index, script)
    assert text.count(statement) == 1, "the mutant no longer fits the script: bring it up to date"
    monkeypatch.setattr(redis_index, script, text.replace(statement, "local ignored = 0"))
    with pytest.raises(AssertionError):
        check(services.redis, unique)


def test_every_must_has_a_mutant():
    """No check is there of which nobody knows whether it can fail."""
    assert {check for check, *_ in MUTANTS} == set(musts.PURE)
    assert {check for check, *_ in REDIS_MUTANTS} | {check for check, *_ in SCRIPTS} == set(musts.ON_REDIS)


@pytest.mark.parametrize(
    ("function", "old", "said"),
    [
        ("f", "a + c", "stands 0 times in f, not once"),
        ("f", "a", "stands 2 times in f, not once"),
        ("g", "a", "there is no g any more"),
    ],
)
def test_a_mutant_that_does_not_fit_says_so(function, old, said):
    """What is replaced is found by its syntax, whatever its layout, and must be there exactly once."""
    source = "def f(a, b):\n    return (\n        a\n        + b, a)\n"
    assert "a - b" in ast.unparse(mutated(source, "f", "a + b", "a - b"))
    with pytest.raises(Misfit, match=said):
        mutated(source, function, old, "0")
