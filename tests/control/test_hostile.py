"""No record, however made, stops a key: each is answered, what is said fits Kafka, and the next is handled."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from state.compiled_part import LocalEntry
from state.config import parse
from state.control import handle as handling
from state.control import part
from state.control.context import Context
from state.control.facts import decode_fact
from state.control.handle import handle
from state.control.home import Home
from state.control.home import decode_state as home_state
from state.control.part import Part
from state.control.part import decode_state as part_state
from state.control.protocol import (
    Advertised,
    Change,
    Entry,
    Expire,
    Forget,
    Republish,
    Resync,
    Seed,
    decode,
    encode,
)
from state.control.streams import Outbox
from state.errors import StateUnreadable
from state.fitting import clipped, misfits, record_bytes
from state.keys import UNROUTABLE, Key, home_key
from state.limits import (
    CLIPPED_BYTES,
    HEADER_OVERHEAD_BYTES,
    INBOX_BYTES_MAX,
    OUTPUT_BYTES_MAX,
    PUBLISHER_BYTES_MAX,
)
from state.messages import Output, Record, content_bytes
from state.space.boxes import Boxes
from state.space.packing import Packed, pack
from state.topics import Topics

TEXT = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t]
reduction = "covering"
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
"""
CONFIG = parse(TEXT)
TOPICS = Topics("hilcast")
CONTEXT = Context(CONFIG, 1, 0)
HOME = home_key("b1", "t", "s1", CONFIG)
GOOD = b'{"client": "alice", "filter": "x < 5"}'


def inbox(value, key=b"b1/t/s1", offset=0, topic=TOPICS.subscriptions, headers=()):
    return Record(topic, 0, offset, 1000 + offset, key, value, headers)


def answers(result):
    """Kind and code of each receipt, then the codes of the dead letters."""
    receipts = [msgspec.json.decode(o.value) for o in result.outputs if o.topic == TOPICS.receipts]
    letters = [dict(o.headers)["hilcast_code"].decode() for o in result.outputs if o.topic == TOPICS.deadletter]
    return [(receipt["kind"], receipt["code"]) for receipt in receipts], letters


@pytest.mark.parametrize(
    "key", [b"\xff" * 600_000, b"b1/" + b"x" * 900_000, "ü".encode() * 400_000], ids=["no UTF-8", "ASCII", "long UTF-8"]
)
@pytest.mark.parametrize("value", [GOOD, b"x" * 400_000], ids=["good", "no JSON"])
def test_a_huge_key_is_answered_by_records_that_fit(key, value):
    """A key of any length and bytes gets one receipt and one dead letter, and both fit."""
    result = handle(UNROUTABLE, None, [inbox(value, key)], CONTEXT)
    assert answers(result) == ([("refused", "bad-key")], ["bad-key"])
    assert not misfits(result.outputs, TOPICS)


def test_a_letter_is_cut_value_first_then_headers_then_key():
    """What does not fit is cut in this order, and the letter says what; what has room stays."""
    small, large = ("small", b"1"), ("large", b"h" * 2_000_000)
    for record, said in [
        (inbox(b"x" * 2_000_000, b"bad", headers=(small,)), b"value"),
        (inbox(b"x" * 100, b"bad", headers=(large, small)), b"headers"),
        (inbox(b"x" * 100, b"k" * 2_000_000, headers=(large,)), b"value,headers,key"),
        (inbox(b"x" * 100, b"bad", headers=(small,)), None),
    ]:
        (letter,) = [o for o in handle(UNROUTABLE, None, [record], CONTEXT).outputs if o.topic == TOPICS.deadletter]
        assert record_bytes(letter) <= OUTPUT_BYTES_MAX
        assert dict(letter.headers).get("hilcast_truncated") == said
        assert (small in letter.headers) == (small in record.headers)
        assert record.key.startswith(letter.key)
        assert record.value.startswith(letter.value)


@pytest.mark.parametrize("withdraws", [False, True])
def test_what_is_larger_than_a_control_record_may_be_is_refused(withdraws):
    """Up to a limit of key, value and headers together it is taken; beyond it is `too-large`, whole or clipped."""
    note = b'{"client": "alice", "filter": "x < 5", "note": "'
    for over, expected in [(0, "withdrawn" if withdraws else "accepted"), (1, "refused")]:
        room = INBOX_BYTES_MAX + over - len(b"b1/t/s1") - len(b"pad") - HEADER_OVERHEAD_BYTES
        value = None if withdraws else note + b"n" * 1000 + b'"}'
        record = inbox(value, headers=(("pad", b"p" * (room - len(value or b""))),))
        for sent in (record, clipped(record, INBOX_BYTES_MAX)):
            result = handle(str(HOME), None, [sent], CONTEXT)
            ((kind, code),), letters = answers(result)
            assert (kind, code, letters) == (expected, *(("too-large", ["too-large"]) if over else (None, [])))


def test_a_clipped_record_is_small():
    """Whatever part of it is large, what is left of a record fits a few pages, and says what is missing."""
    for record, said in [
        (inbox(b"v" * 1_100_000), b"value"),
        (inbox(GOOD, b"k" * 1_100_000), b"key"),
        (inbox(None, headers=(("h", b"h" * 1_100_000),)), b"headers"),
        (inbox(b"v" * 600_000, b"k" * 600_000, headers=(("h", b"1"),)), b"value,headers,key"),
    ]:
        left = clipped(record, INBOX_BYTES_MAX)
        assert content_bytes(left) < 3 * CLIPPED_BYTES
        assert left.headers == (("hilcast_truncated", said),)
        assert left.place == record.place


def test_a_publisher_has_a_name_of_bounded_length():
    """A name of 4096 bytes is taken, and all that follows from it fits; a longer one is a bad value."""
    for size, expected in [(PUBLISHER_BYTES_MAX, "accepted"), (PUBLISHER_BYTES_MAX + 1, "refused")]:
        value = msgspec.json.encode({"publisher": "p" * size, "filter": "x < 5"})
        result = handle(str(HOME), None, [inbox(value, topic=TOPICS.advertisements)], CONTEXT)
        ((kind, _),), _ = answers(result)
        assert kind == expected
    assert answers(result) == ([("refused", "bad-value")], ["bad-value"])


def test_reasons_are_cut():
    """However long a reason is, its receipt and its dead letter hold 2,000 bytes of it, whole characters all."""
    value = msgspec.json.encode({"client": "alice", "filter": {"ü" * 3000: 1}})
    result = handle(str(HOME), None, [inbox(value)], CONTEXT)
    for output in result.outputs:
        reason = dict(output.headers).get("hilcast_reason") or msgspec.json.decode(output.value)["reason"].encode()
        assert 0 < len(reason.decode().encode()) <= 2000


# ── messages between keys that are too long for one ─────────────────────────────────────────────────────────────────


def control(message, key, offset=0):
    value = message if isinstance(message, bytes) else encode(message)
    return Record(TOPICS.control, 0, offset, 0, key.encode() if isinstance(key, str) else key, value)


def change(sequence=1, source="b1/t/home:0", **more):
    given = {"generation": 1, "grid": CONTEXT.dialect("t")} | more
    return Change(source=source, sequence=sequence, **given)


def local(id, low=0, high=4):
    boxes = Boxes.of([([low], [high])])
    return LocalEntry(id, "alice", TOPICS.deliver("alice"), None, pack(boxes))


def long_name(i):
    return f"s{i:063}"


def test_many_removals_are_cut_and_applied_as_one_step():
    """60,000 entries of ids of 64 characters come and go at once: every message fits, and the neighbour follows."""
    ids = [long_name(i) for i in range(60_000)]
    cube = Part(Key("b1", "t", "cube:0"), None, CONTEXT)
    neighbour = Part(Key("b2", "t", "cube:0"), None, CONTEXT)
    entries = {id: local(id) for id in ids}
    outbox = Outbox(Key("b1", "t", "home:0"), 1, CONTEXT.dialect("t"), {})
    for message in [
        *outbox.change("b1/t/cube:0", local=list(entries.values())),
        *outbox.change("b1/t/cube:0", removed=ids),
    ]:
        assert len(encode(message[1])) < OUTPUT_BYTES_MAX
        cube.apply(message[1])
        for target, said in cube.advance():
            assert not misfits([Output(TOPICS.control, target.encode(), encode(said))], TOPICS)
            neighbour.apply(said)
    assert (cube.state.local, neighbour.state.received["b1"]) == ({}, {})
    told = Outbox(Key("b1", "t", "cube:0"), 1, "g", {}).change("b2/t/cube:0", removed=ids, unadvertised=ids)
    assert len(told) > 8
    assert max(len(encode(message)) for _, message in told) < OUTPUT_BYTES_MAX


def test_twenty_thousand_leases_that_lapse_at_once():
    """A fleet whose leases end in one batch gets its answers; what parts are told of it fits, and empties them."""
    n = 20_000
    names = [long_name(i) for i in range(n)]
    config = parse(TEXT.replace("[overlay]", "[settings]\nhome_shards = 1\n[overlay]"))
    context = Context(config, 1, 0)
    value = b'{"client": "alice", "filter": "x < 5", "ttl_ms": 1000}'
    records = [inbox(value, f"b1/t/{name}".encode(), i) for i, name in enumerate(names)]
    born = handle("b1/t/home:0", None, records, context)
    ends = [control(Expire(False, name, 1), "b1/t/home:0", i) for i, name in enumerate(names)]
    ended = handle("b1/t/home:0", born.state, ends, context)
    assert sum(o.topic == TOPICS.receipts for o in ended.outputs) == n
    states = {}
    for result in (born, ended):
        assert not misfits(result.outputs, TOPICS)
        by_part = {}
        for i, output in enumerate(o for o in result.outputs if o.topic == TOPICS.control):
            by_part.setdefault(output.key.decode(), []).append(control(output.value, output.key, i))
        assert any(len(some) > 1 for some in by_part.values())
        for key, some in by_part.items():
            told = handle(key, states.get(key), some, context)
            assert not misfits(told.outputs, TOPICS)
            states[key] = told.state
    assert all(Part(Key.parse(key), blob, context).state.local == {} for key, blob in states.items())


def test_a_filter_of_many_attributes_fits_a_message():
    """1,024 boxes of 60 attributes would not fit: such a filter is a bounding box, checked at the edge."""
    names = "\n".join(f'a{i} = {{ kind = "int" }}' for i in range(60))
    config = parse(TEXT.replace('x = { kind = "int", min = 0, max = 100 }', names).replace("cubes = 4", "cubes = 1"))
    many = ",".join(str(2 * i) for i in range(30))
    value = msgspec.json.encode({"client": "alice", "filter": f"a0 IN ({many}) AND a1 IN ({many})"})
    result = handle(str(home_key("b1", "t", "s1", config)), None, [inbox(value)], Context(config, 1, 0))
    assert answers(result) == ([("accepted", None)], [])
    assert max(map(record_bytes, result.outputs)) < 100_000


# ── JSON that is deep, large or odd ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("depth", [100, 127, 130, 946, 970, 992, 5000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"all":[', "]}"), ('{"not":', "}")])
@pytest.mark.parametrize(
    "member", ['"filter": {}', '"filter": {{"exact": {{"x": {}}}}}', '"version": {}', '"note": {}']
)
def test_deep_json_is_answered(depth, opening, closing, member):
    """However deep a member is nested, the event has one answer, and the next one is taken."""
    deep = member.format(opening * depth + "1" + closing * depth)
    filter = "" if deep.startswith('"filter"') else ', "filter": "x < 5"'
    value = f'{{"client": "alice"{filter}, {deep}}}'.encode()
    result = handle(str(HOME), None, [inbox(value), inbox(GOOD, offset=1)], CONTEXT)
    (first, second), letters = answers(result)
    assert second[0] in ("accepted", "replaced")
    assert (first[0] == "refused") == (len(letters) == 1)
    levels = depth * opening.count("{") + depth * opening.count("[")
    if levels > 128:
        assert first == ("refused", "too-large" if len(value) > INBOX_BYTES_MAX - 100 else "bad-json")
    elif "note" in member:
        assert first == ("accepted", None)
    assert result.faults == []


@pytest.mark.parametrize("note", ["1e400", "9" * 5000, '"\\ud800"', "[1e999, {}]", '{"\\udfff": "\\ud800\\ud800"}'])
def test_what_an_unknown_member_holds_does_not_matter(note):
    """Numbers beyond all bounds and halves of surrogate pairs are ignored where the member is."""
    value = f'{{"note": {note}, "client": "bob", "client": "alice", "filter": "x < 5"}}'.encode()
    result = handle(str(HOME), None, [inbox(value)], CONTEXT)
    assert answers(result) == ([("accepted", None)], [])
    (receipt,) = [o for o in result.outputs if o.topic == TOPICS.receipts]
    assert receipt.key == b"alice"


@pytest.mark.parametrize(
    ("member", "code"),
    [
        ('"version": 1e400', "bad-value"),
        ('"version": ' + "9" * 5000, "bad-value"),
        ('"ttl_ms": -' + "9" * 4299, "bad-value"),
        ('"sink": "\\ud800"', "bad-value"),
        ('"ranges": "\\ud800"', "bad-value"),
        ('"client": "\\ud800"', "bad-value"),
        ('"filter": "x < 5 \\ud800"', "filter-syntax"),
        ('"filter": {"exact": {"x": "\\ud800"}}', "filter-syntax"),
        ('"filter": {"\\ud800": {}}', "filter-syntax"),
        ('"filter": {"exact": {"x": 1e400}}', "filter-type"),
        ('"filter": {"exact": {"x": ' + "9" * 5000 + "}}", "filter-type"),
        ('"note": NaN', "bad-json"),
        ('"note": [-Infinity]', "bad-json"),
    ],
)
@pytest.mark.parametrize("topic", [TOPICS.subscriptions, TOPICS.advertisements])
def test_what_a_known_member_holds_is_judged(member, code, topic):
    """The same in a member that is read is refused with a code, and nothing fails inside."""
    owner = "client" if topic == TOPICS.subscriptions else "publisher"
    member = member.replace('"client"', f'"{owner}"')
    value = f'{{"{owner}": "alice", "filter": "x < 5", {member}}}'.encode()
    result = handle(str(HOME), None, [inbox(value, topic=topic), inbox(GOOD, b"b1/t/s1", 7)], CONTEXT)
    (first, second), letters = answers(result)
    assert second == ("accepted", None)
    ignored = topic == TOPICS.advertisements and '"sink"' in member
    assert (first, letters) == ((("accepted", None), []) if ignored else (("refused", code), [code]))
    assert result.faults == []


# ── control records that nobody of ours wrote ───────────────────────────────────────────────────────────────────────

PACKED = pack(Boxes.of([([1], [2])]))
DIALECT = CONTEXT.dialect("t")
ENTRY = Entry("b2/s1", PACKED)


def forged_filter(text):
    return LocalEntry("s1", "alice", TOPICS.deliver("alice"), text, PACKED, exact=False)


FORGED = {
    "no source": change(source=""),
    "no key": change(source="nonsense"),
    "deep": change(source="a/b/c/d"),
    "unknown broker": change(source="b9/t/cube:0"),
    "unknown type": change(source="b2/u/cube:0"),
    "no number": change(source="b2/t/cube:x"),
    "no such part": change(source="b2/t/cube:4"),
    "another part": change(source="b2/t/cube:1"),
    "wide": change(source="b2/t/wide:0"),
    "itself": change(source="b1/t/cube:0"),
    "another's home": change(source="b2/t/home:0"),
    "no such home": change(source="b1/t/home:8"),
    "two names": change(source="b2/t/cube:00"),
    "sequence 0": change(0, "b2/t/cube:0"),
    "sequence": change(-5, "b2/t/cube:0"),
    "piece": change(1, "b2/t/cube:0", piece=1, pieces=1),
    "pieces": change(1, "b2/t/cube:0", piece=0, pieces=2**40),
    "generation": change(1, "b2/t/cube:0", generation=2),
    "below": change(1, "b2/t/cube:0", generation=-1),
    "geometry": change(1, "b2/t/cube:0", entries=[Entry("b2/s1", Packed(0, 2, b"\0" * 16, b"\0" * 16))]),
    "half a box": change(1, "b2/t/cube:0", entries=[Entry("b2/s1", Packed(0, 1, b"\0" * 8, b""))]),
    "no box": change(1, "b2/t/cube:0", entries=[Entry("b2/s1", Packed(0, 1, b"\0" * 7, b"\0" * 7))]),
    "inside out": change(1, "b2/t/cube:0", entries=[Entry("b2/s1", Packed(0, 1, b"\1" * 8, b"\0" * 8))]),
    "kind": change(1, "b2/t/cube:0", entries=[Entry("b2/s1", Packed(7, 1, b"", b""))]),
    "ranges": change(1, "b2/t/cube:0", entries=[Entry("b2/s1", Packed(1, 1, b"\1\1\0\0", b""))]),
    "home's entries": change(1, "b1/t/home:0", entries=[ENTRY]),
    "neighbour's clients": change(1, "b2/t/cube:0", local=[local("s1")]),
    "id": change(local=[local("no name")]),
    "destination": change(local=[LocalEntry("s1", "alice", "no topic!", None, PACKED)]),
    "our topic": change(local=[LocalEntry("s1", "alice", TOPICS.control, None, PACKED)]),
    "advertisement": change(advertised=[Advertised("a1", "p", "TRUE", PACKED)]),
    "filter": change(local=[forged_filter("x <")]),
    "unknown attribute": change(local=[forged_filter("nothing = 1")]),
    "deep filter": change(local=[forged_filter("(" * 50_000 + "x < 1")]),
    "doubtful without a filter": change(local=[forged_filter(None)]),
    "promise": change(advertised=[Advertised("b1/a1", "p", "x <", PACKED)]),
    "empty promise": change(advertised=[Advertised("b1/a1", "p", "", PACKED)]),
    "neighbour's promise": change(1, "b2/t/cube:0", advertised=[Advertised("b2/a1", "p", "x <", PACKED)]),
    "publisher": change(advertised=[Advertised("b1/a1", "p" * 5000, "TRUE", PACKED)]),
    "asked by nobody": Resync("nonsense", DIALECT),
    "asked by a home": Resync("b1/t/home:0", DIALECT),
    "asked by another part": Resync("b2/t/cube:1", DIALECT),
    "asked by itself": Resync("b1/t/cube:0", DIALECT),
    "expire": Expire(False, "s1", 1),
    "forget": Forget(False, "s1", 1),
    "seed beyond": Seed(1, 5, 2, b"x"),
    "seed of nothing": Seed(1, 0, 0, b""),
    "seed below": Seed(1, -1, 1, b""),
    "no message": b"\xc1",
    "empty": b"",
    "deep msgpack": b"\x91" * 100_000,
    "no UTF-8": b"\x92\xa6resync\xa2\xe1x",
    "no UTF-8 in a tag": b"\x91\xa3\xe1xx",
    "no UTF-8 in a source": encode(change(source="?")).replace(b"\xa1?", b"\xa1\xe1"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_message_changes_nothing(forged):
    """What cannot be true is a dead letter `bad-value`; the state is what it would be without it, bit by bit."""
    key = "b1/t/cube:0"
    good = control(change(1, "b2/t/cube:0", entries=[ENTRY]), key)
    state = handle(key, None, [good], CONTEXT).state
    more = control(change(2, "b2/t/cube:0", removed=["b2/s1"]), key, 2)
    alone = handle(key, state, [more], CONTEXT)
    result = handle(key, state, [control(FORGED[forged], key, 1), more], CONTEXT)
    assert answers(result) == ([], ["bad-value"])
    assert (result.state, result.faults) == (alone.state, [])
    assert [o for o in result.outputs if o.topic == TOPICS.control] == [
        o for o in alone.outputs if o.topic == TOPICS.control
    ]


@pytest.mark.parametrize(
    "message",
    [
        change(),
        change(1, "b2/t/cube:0"),
        Republish(),
        Resync("b2/t/cube:0", DIALECT),
        Resync("b1/t/home:0", DIALECT),
        Expire(False, "no name", 1),
        Expire(False, "s1", -1),
        Forget(True, "s1", 2**63),
    ],
)
def test_a_home_is_told_nothing_by_others(message):
    """Changes, requests of strangers and absurd timers to a home key are dead letters, and it answers on."""
    encoded = control(message, str(HOME))
    result = handle(str(HOME), None, [encoded, inbox(GOOD)], CONTEXT)
    assert answers(result) == ([("accepted", None)], ["bad-value"])


@pytest.mark.parametrize(
    "key",
    ["b1/t/cube:999999999", "b1/t/cube:4", "b1/t/home:8", "b1/t/wide:99", "b1/t/cube:01", "b1/t/s1",
     "b9/t/cube:0", "nonsense", "b1/t/cube:-1", "b1/t/cube:"],
)  # fmt: skip
def test_a_key_that_does_not_exist_has_no_state(key):
    """A control record for a part beyond the cubes, or for no part at all, is passed over: it is of another time."""
    result = handle(key, None, [control(change(), key), control(Seed(1, 0, 1, b"x"), key, 1)], CONTEXT)
    assert (result.state, result.index) == (None, None)
    assert answers(result) == ([], [])


def test_a_deployment_with_another_configuration_is_no_forger():
    """What is said in another dialect is ignored without a dead letter, also where we do not have the part."""
    for key in ("b1/t/cube:0", "b1/t/cube:31"):
        said = [change(source="b2/t/cube:31", grid="other/boxes/1"), Resync("b2/t/cube:31", "other/boxes/1")]
        result = handle(key, None, [control(m, key, i) for i, m in enumerate(said)], CONTEXT)
        assert answers(result) == ([], [])


def test_seeds_that_are_not_whole_or_no_state_are_dead_letters():
    """A forged seed that lacks pieces or cannot be read starts nothing; a true one starts the key all the same."""
    key = "b1/t/cube:0"
    true = handle(key, None, [control(change(1, "b2/t/cube:0", entries=[ENTRY]), key)], CONTEXT).state
    half, damaged = Seed(1, 1, 2, true), Seed(1, 0, 1, b"\x09damaged")
    result = handle(key, None, [control(m, key, i) for i, m in enumerate((half, damaged))], CONTEXT)
    assert answers(result) == ([], ["bad-value", "bad-value"])
    assert part_state(result.state).received == {}
    result = handle(key, None, [control(m, key, i) for i, m in enumerate((half, Seed(1, 0, 1, true)))], CONTEXT)
    assert part_state(result.state).received == {"b2": {"b2/s1": ENTRY}}


# ── what fails inside ───────────────────────────────────────────────────────────────────────────────────────────────


def failing(monkeypatch, owner, name, poison, error=RuntimeError):
    """Let a method raise whenever `poison` says so of its arguments."""
    real = getattr(owner, name)

    def broken(self, *arguments):
        if poison(*arguments):
            raise error("found by a record")
        return real(self, *arguments)

    monkeypatch.setattr(owner, name, broken)


@pytest.mark.parametrize("error", [RuntimeError, RecursionError, AssertionError, IndexError])
@pytest.mark.parametrize("poison", [{3}, {0}, {9}, {2, 3, 7}, set(range(10))], ids=str)
def test_an_inbox_record_that_fails_inside_is_left_out(monkeypatch, poison, error):
    """It is answered with `internal`, counted and said; all others have the effect that they have without it."""
    records = [inbox(GOOD, f"b1/t/s{i}".encode(), i) for i in range(10)]
    config = parse(TEXT.replace("[overlay]", "[settings]\nhome_shards = 1\n[overlay]"))
    context = Context(config, 1, 0)
    rest = handle("b1/t/home:0", None, [r for r in records if r.offset not in poison], context)
    failing(monkeypatch, Home, "register", lambda record: record.offset in poison, error)
    result = handle("b1/t/home:0", None, records, context)
    again = handle("b1/t/home:0", None, list(reversed(records)), context)
    assert (result.state, result.outputs) == (again.state, again.outputs)
    kinds, letters = answers(result)
    assert kinds.count(("refused", "internal")) == len(letters) == len(poison)
    assert kinds.count(("accepted", None)) == 10 - len(poison)
    assert set(letters) == {"internal"}
    assert result.figures["internal"] == len(result.faults) == len(poison)
    assert all(error.__name__ in line and "found by a record" in line for line in result.faults)
    reasons = [dict(o.headers)["hilcast_reason"] for o in result.outputs if o.topic == TOPICS.deadletter]
    assert set(reasons) == {f"handling it failed inside: {error.__name__}".encode()}
    facts = [o for o in result.outputs if o.topic == TOPICS.registry]
    assert facts == [o for o in rest.outputs if o.topic == TOPICS.registry]
    if len(poison) < 10:
        assert home_state(result.state).facts == home_state(rest.state).facts


def test_a_change_that_fails_inside_is_a_gap_that_is_asked_for(monkeypatch):
    """The others of its batch are applied, and its sender is asked for everything; of a snapshot it is not, again."""
    key = "b1/t/cube:0"
    failing(monkeypatch, Part, "_change", lambda message: any(e.id == "poison" for e in message.entries))
    home = control(change(1, local=[local("s1")]), key, 0)
    bad = control(change(1, "b2/t/cube:0", entries=[Entry("poison", PACKED)]), key, 1)
    result = handle(key, None, [home, bad], CONTEXT)
    assert answers(result) == ([], ["internal"])
    assert set(part_state(result.state).local) == {"s1"}
    asked = [o.key for o in result.outputs if o.topic == TOPICS.control and isinstance(decode(o.value), Resync)]
    assert asked == [b"b2/t/cube:0"]
    whole = [
        change(2, "b2/t/cube:0", snapshot=True, entries=[Entry("poison", PACKED)], pieces=2),
        change(3, "b2/t/cube:0", snapshot=True, entries=[ENTRY], piece=1, pieces=2),
    ]
    result = handle(key, result.state, [control(m, key, 2 + i) for i, m in enumerate(whole)], CONTEXT)
    assert answers(result) == ([], ["internal"])
    assert not [o for o in result.outputs if o.topic == TOPICS.control and isinstance(decode(o.value), Resync)]


def test_an_output_that_does_not_fit_is_left_out_too(monkeypatch):
    """Where the core itself made a record too large, the batch goes on without its cause."""
    real = Home._register

    def large(self, name, fact):
        real(self, name, fact)
        if name.id == "s2":
            self.outputs.append(Output(TOPICS.receipts, None, b"x" * 3_000_000))

    monkeypatch.setattr(Home, "_register", large)
    config = parse(TEXT.replace("[overlay]", "[settings]\nhome_shards = 1\n[overlay]"))
    records = [inbox(GOOD, f"b1/t/s{i}".encode(), i) for i in range(4)]
    result = handle("b1/t/home:0", None, records, Context(config, 1, 0))
    assert answers(result)[1] == ["internal"]
    assert not misfits(result.outputs, TOPICS)
    assert sum(o.topic == TOPICS.registry for o in result.outputs) == 3


def test_what_the_machine_lacks_is_no_fault_of_a_record(monkeypatch):
    """Without memory or disk nothing is left out: the batch is to be tried again."""
    for error in (MemoryError, OSError):
        with monkeypatch.context() as patch:
            failing(patch, Home, "register", lambda record: True, error)
            with pytest.raises(error):
                handle(str(HOME), None, [inbox(GOOD)], CONTEXT)


def test_what_names_no_key_is_answered_when_it_fails_inside(monkeypatch):
    """Where even reading fails, there is a receipt and a dead letter, and the others are answered."""
    real = handling.read_registration
    monkeypatch.setattr(handling, "read_registration", lambda r, c: {}["bug"] if r.offset == 1 else real(r, c))
    result = handle(UNROUTABLE, None, [inbox(GOOD, b"?", i) for i in range(3)], CONTEXT)
    assert answers(result) == (
        [("refused", "bad-key"), ("refused", "internal"), ("refused", "bad-key")],
        ["bad-key", "internal", "bad-key"],
    )
    monkeypatch.setattr(handling, "refusal", lambda *given: {}["bug"])
    result = handle(UNROUTABLE, None, [inbox(GOOD, b"?", 1)], CONTEXT)
    assert answers(result) == ([("refused", "internal")], ["internal"])


def test_a_quarantined_record_is_answered_and_not_handled():
    """What no query could be got past is left out as if it failed inside; the state is what it is without it."""
    records = [inbox(GOOD, f"b1/t/s{i}".encode(), i) for i in range(6)]
    here = replace(CONTEXT, quarantined=frozenset({records[2].place}))
    home = str(HOME)
    result = handle(home, None, records, here)
    without = handle(home, None, [r for r in records if r is not records[2]], CONTEXT)
    assert home_state(result.state).facts == home_state(without.state).facts
    kinds, codes = answers(result)
    assert (kinds.count(("accepted", None)), kinds.count(("refused", "internal")), codes) == (5, 1, ["internal"])
    lost = control(change(1, "b2/t/cube:0", entries=[ENTRY]), "b1/t/cube:0")
    told = handle("b1/t/cube:0", None, [lost], replace(CONTEXT, quarantined=frozenset({lost.place})))
    assert answers(told) == ([], ["internal"])
    (request,) = [decode(o.value) for o in told.outputs if o.topic == TOPICS.control]
    assert request == Resync("b1/t/cube:0", DIALECT), "what it said is asked for again"
    nobody = inbox(GOOD, b"b9/t/s1")
    result = handle(UNROUTABLE, None, [nobody], replace(CONTEXT, quarantined=frozenset({nobody.place})))
    assert answers(result) == ([("refused", "internal")], ["internal"])


@pytest.mark.parametrize("key", [str(HOME), "b1/t/cube:0"])
@pytest.mark.parametrize("damage", [lambda blob: b"\x63" + blob[1:], lambda blob: blob[:-1], lambda blob: b""])
def test_a_state_that_cannot_be_read_is_said_and_nothing_consumed(key, damage):
    """Then `handle` raises `state-unreadable`, whatever the records are: they wait for a new generation."""
    first = inbox(GOOD) if key == str(HOME) else control(change(1, "b2/t/cube:0", entries=[ENTRY]), key)
    state = handle(key, None, [first], CONTEXT).state
    for records in ([first], [first, control(b"", key, 5)], [control(Republish(), key)] if "cube" in key else [first]):
        with pytest.raises(StateUnreadable, match=f"^state-unreadable: {key}: "):
            handle(key, damage(state), records, CONTEXT)


def test_a_state_whose_reduction_cannot_be_read_is_unreadable():
    """What is packed inside a state is part of it: no change is blamed for what it finds there."""
    key = "b1/t/cube:0"
    state = part_state(handle(key, None, [control(change(local=[local("s1")]), key)], CONTEXT).state)
    state.reductions["b2"] = b"\x63damaged"
    with pytest.raises(StateUnreadable):
        handle(key, part.encode_state(state), [control(change(2, local=[local("s2")]), key, 1)], CONTEXT)


# ── versions and offsets ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_highest_version_can_be_withdrawn():
    """After 2^63-1 a withdrawal without a version withdraws, again and again; a subscription without one cannot be."""
    top = b'{"client": "alice", "filter": "x < 5", "version": 9223372036854775807}'
    given = [top, GOOD, None, None, GOOD, top]
    result = handle(str(HOME), None, [inbox(value, offset=i) for i, value in enumerate(given)], CONTEXT)
    receipts, _ = answers(result)
    assert receipts == [
        ("accepted", None),
        ("refused", "bad-value"),
        ("withdrawn", None),
        ("withdrawn", None),
        ("refused", "bad-value"),
        ("refused", "stale-version"),
    ]
    versions = [msgspec.json.decode(o.value)["version"] for o in result.outputs if o.topic == TOPICS.receipts]
    assert versions[2] == versions[3] == 2**63 - 1


def test_an_inbox_that_was_made_again_counts_anew():
    """A fact of another topic id is not compared by its offset; without ids, or with the same, it is as ever."""
    old, new = Context(CONFIG, 1, 0, topic_ids={TOPICS.subscriptions: "A"}), Context(CONFIG, 1, 1)
    state = handle(str(HOME), None, [inbox(GOOD, offset=41)], old).state
    withdrawal = [inbox(None, offset=0)]
    assert answers(handle(str(HOME), state, withdrawal, old)) == ([], [])
    assert answers(handle(str(HOME), state, withdrawal, new)) == ([], [])
    again = Context(CONFIG, 1, 1, topic_ids={TOPICS.subscriptions: "B"})
    result = handle(str(HOME), state, withdrawal, again)
    assert answers(result) == ([("withdrawn", None)], [])
    assert answers(handle(str(HOME), result.state, withdrawal, again)) == ([("withdrawn", None)], [])
    (fact,) = [decode_fact(o.value) for o in result.outputs if o.topic == TOPICS.registry]
    assert (fact.topic_id, fact.offset, fact.deployment, fact.generation) == ("B", 0, "main", 1)
