"""Inboxes of clients' own in the core: nobody acts for another, answers go home, quotas are exact; and musts of it."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from dataclasses import replace

import msgspec
import pytest

from state.compiled_part import LocalEntry
from state.config import parse
from state.control import journal
from state.control.context import Context
from state.control.facts import Kind, decode_fact
from state.control.handle import handle
from state.control.home import FORMAT as HOME_FORMAT
from state.control.home import decode_state
from state.control.protocol import Amend, Change, Expire, encode
from state.control.quotas import MINUTE_MS, Quotas
from state.control.rebuild import rebuild
from state.cost import cost
from state.errors import HilcastError
from state.filters.grammar import parse as filter_of
from state.keys import home_key
from state.messages import REASONS, Record
from state.names import owned
from state.space.boxes import Boxes
from state.space.grid import Grid
from state.space.packing import pack
from tests.control.mutation import Mutant

TEXT = """
[overlay]
brokers = ["b1"]
[types.t]
cubes = 4
[types.t.attributes]
x = { kind = "int", min = 0, max = 100 }
y = { kind = "int", min = 0, max = 100 }
"""
OWN = """
[security]
inboxes = "own"
[security.clients.shop]
sources = ["urn:shop", "urn:shop/*"]
[[sinks]]
topic = "alerts"
clients = ["alice"]
"""
CONFIG = parse(TEXT + OWN)


class Core:
    """All home keys of one broker and type, driven record by record as the control query would."""

    def __init__(self, config=CONFIG, generation=1):
        self.config, self.generation, self.states, self.offsets, self.registry = config, generation, {}, {}, {}
        self.outputs = []

    def record(self, client, id, value, kind="subscriptions", at_ms=1000, headers=()):
        topic = self.config.topics.inbox(kind, client) if self.config.security.own else f"hilcast.{kind}"
        offset = self.offsets[topic] = self.offsets.get(topic, -1) + 1
        body = None if value is None else json.dumps(value).encode()
        return Record(topic, 0, offset, at_ms, f"b1/t/{id}".encode(), body, headers)

    def take(self, *records):
        """Handle a batch; return what each record is answered: topic, kind and code."""
        by_key = {}
        for record in records:
            owner = self.config.topics.client_of(record.topic)
            id = (record.key or b"").decode().split("/")[-1]
            inner = id if owner is None else owned(owner[1], id)
            by_key.setdefault(str(home_key("b1", "t", inner, self.config)), []).append(record)
        answers = {}
        self.outputs = []
        for key, some in by_key.items():
            result = handle(key, self.states.get(key), some, Context(self.config, self.generation, 1))
            self.states[key] = result.state
            self.outputs += result.outputs
            for output in result.outputs:
                if output.topic.startswith(self.config.topics.receipts):
                    assert output.topic == self.config.topics.receipts or output.topic in result.topics
                    said = json.loads(output.value)
                    answers[said["topic"], said["offset"]] = (output.topic, said["kind"], said["code"])
                elif output.topic == self.config.topics.registry:
                    self.registry[output.key] = output.value
        return [answers.get((r.topic, r.offset)) for r in records]

    def say(self, *args, **kw):
        (answer,) = self.take(self.record(*args, **kw))
        return answer[1:]

    def letters(self):
        found = [o for o in self.outputs if o.topic == self.config.topics.deadletter]
        return [dict(o.headers)["hilcast_code"].decode() for o in found]

    def live(self):
        """What stands, by client and id, as the states have it."""
        facts = [decode_state(state).facts for state in self.states.values() if state is not None]
        return {id: f.filter for by in facts for id, f in by[Kind.SUBSCRIPTION].items() if f.live}

    def facts(self):
        for key, value in self.registry.items():
            if value is not None:
                yield (*key.decode().split("/"), decode_fact(value))


def text(answer):
    return {"filter": answer}


# ── whose it is ─────────────────────────────────────────────────────────────────────────────────────────────────────


def nobody_touches_what_is_not_his():
    """Whatever another says on an id, replacing, withdrawing, extending, the owner's registration stands as it was."""
    core = Core()
    assert core.say("alice", "s1", {"filter": "x < 5", "version": 1, "ttl_ms": 60}) == ("accepted", None)
    before = core.registry[b"subscription/b1/t/alice:s1"]
    assert core.say("bob", "s1", {"filter": "x > 5", "version": 7}) == ("accepted", None)
    assert core.say("bob", "s1", {"client": "alice", "filter": "x > 5", "version": 8}) == ("refused", "not-yours")
    assert core.letters() == ["not-yours"]
    assert core.say("bob", "s1", None) == ("withdrawn", None)
    assert core.live() == {"alice:s1": '"x < 5"'}
    assert core.registry[b"subscription/b1/t/alice:s1"] == before


def answers_go_home():
    """The answer to a record is in the receipts of the client in whose inbox it is, whomever it names."""
    core = Core()
    records = [
        core.record("alice", "s1", {"filter": "x < 5"}),
        core.record("bob", "s1", {"client": "alice", "filter": "x < 5"}),
        core.record("bob", "s2", {"filter": "x <"}),
        core.record("bob", "s3", None),
    ]
    topics = [answer[0] for answer in core.take(*records)]
    assert topics == ["hilcast.receipts.alice", *["hilcast.receipts.bob"] * 3]


def an_advertisement_is_of_its_clients_sources():
    """A publisher that is not among the client's sources is refused; without one it is the first."""
    core = Core()
    ads = "advertisements"
    assert core.say("shop", "a", {"publisher": "urn:shop/7", "filter": "TRUE"}, kind=ads) == ("accepted", None)
    assert core.say("shop", "b", {"filter": "TRUE"}, kind=ads) == ("accepted", None)
    assert core.say("shop", "c", {"publisher": "urn:other", "filter": "TRUE"}, kind=ads) == ("refused", "not-yours")
    assert core.say("bob", "d", {"publisher": "urn:shop", "filter": "TRUE"}, kind=ads) == ("refused", "not-yours")
    owners = {id: fact.owner for _, _, _, id, fact in core.facts()}
    assert owners == {"shop:a": "urn:shop/7", "shop:b": "urn:shop"}


def a_sink_needs_a_grant():
    """Only clients that a sink is granted to deliver there; everybody else is refused with `sink-refused`."""
    core = Core()
    assert core.say("alice", "s1", {"filter": "x < 5", "sink": "alerts"}) == ("accepted", None)
    assert core.say("bob", "s1", {"filter": "x < 5", "sink": "alerts"}) == ("refused", "sink-refused")
    assert core.say("alice", "s2", {"filter": "x < 5", "sink": "other"}) == ("refused", "sink-refused")
    assert core.letters() == ["sink-refused"]


def a_part_believes_no_foreign_entry():
    """An entry whose id is in another's namespace, or in none, cannot be true where inboxes are clients' own."""
    context = Context(CONFIG, 1, 1)
    box = pack(Boxes.of([([1, 1], [2, 2])]))
    for id, client, believed in (("alice:s", "alice", True), ("alice:s", "bob", False), ("s", "alice", False)):
        entry = LocalEntry(id, client, CONFIG.topics.deliver(client), None, box)
        home = home_key("b1", "t", id, CONFIG)
        change = Change(source=str(home), generation=1, sequence=1, grid=context.dialect("t"), local=[entry])
        record = Record("hilcast.control", 0, 0, 0, b"b1/t/cube:0", encode(change))
        result = handle("b1/t/cube:0", None, [record], context)
        letters = [o for o in result.outputs if o.topic == "hilcast.deadletter"]
        assert bool(letters) != believed


# ── quotas ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def limited(limits, config=OWN):
    return parse(f"{TEXT}{config}[limits]\n{limits}\n")


def no_more_than_the_limit_are_live():
    """A new one is refused once as many are live; a replacement never, and a withdrawal makes room."""
    core = Core(limited("subscriptions = 2"))
    assert [core.say("bob", id, text("x < 5"))[1] for id in ("a", "b", "c")] == [None, None, "over-quota"]
    assert core.letters() == ["over-quota"]
    assert core.say("bob", "a", text("x < 9")) == ("replaced", None)
    assert core.say("alice", "a", text("x < 5")) == ("accepted", None)
    assert core.say("bob", "a", None) == ("withdrawn", None)
    batch = [core.record("bob", id, text("x < 5")) for id in ("c", "d")]
    assert [answer[2] for answer in core.take(*batch)] == [None, "over-quota"]
    fact = decode_fact(core.registry[b"subscription/b1/t/bob:c"])
    expire = Record("hilcast.control", 0, 0, 0, b"", encode(Expire(False, "bob:c", fact.version)))
    key = str(home_key("b1", "t", "bob:c", core.config))
    core.states[key] = handle(key, core.states[key], [expire], Context(core.config, 1, 2)).state
    assert core.say("bob", "d", text("x < 5")) == ("accepted", None)


def what_was_refused_stays_refused():
    """A new generation that reads an inbox again refuses what was over the limit when it came, though there is room."""
    core = Core(limited("subscriptions = 1"))
    records = [
        core.record("bob", "a", text("x < 5")),
        core.record("bob", "b", text("x < 6")),
        core.record("bob", "a", None),
    ]
    assert [answer[2] for answer in core.take(*records)] == [None, "over-quota", None]
    again = Core(core.config, generation=2)
    states = rebuild(core.facts(), Context(core.config, 2, 0)).states
    again.states = {key: state for key, state in states.items() if "home" in key}
    answers = again.take(*records, core.record("bob", "d", text("x < 8")))
    assert [answers[1][2], answers[-1][2]] == ["over-quota", None]
    assert again.live() == {"bob:d": '"x < 8"'}


def a_minute_has_so_many_changes():
    """Of the control events of any minute no more than the limit are looked at, by the broker's clock."""
    core = Core(limited("changes_per_minute = 3"))
    rng = random.Random(5)
    times, looked = sorted(rng.randrange(0, 10 * MINUTE_MS) for _ in range(120)), []
    for at_ms in times:
        value = rng.choice(({"filter": "x < 5"}, {"filter": "x <"}, None, {"client": "alice", "filter": "TRUE"}))
        _, code = core.say("bob", f"s{rng.randrange(5)}", value, at_ms=at_ms)
        within = [t for t in looked if t > at_ms - MINUTE_MS]
        assert (code == "over-quota") == (len(within) >= 3), at_ms
        looked += [] if code == "over-quota" else [at_ms]
    assert 20 < len(looked) < 100
    assert core.say("alice", "s1", text("x < 5"), at_ms=times[-1]) == ("accepted", None)


def a_new_generation_goes_on_counting():
    """Whatever generations begin in between, no minute has more changes than the limit; and nothing is refused that has
    room in a minute and ten seconds.
    """
    core = Core(limited("changes_per_minute = 3"))
    rng = random.Random(7)
    times, looked, strict = sorted(rng.randrange(0, 20 * MINUTE_MS) for _ in range(200)), [], 0
    for at_ms in times:
        if rng.random() < 0.3:
            core.generation += 1
            states = rebuild(core.facts(), Context(core.config, core.generation, 0)).states
            core.states = {key: state for key, state in states.items() if "home" in key}
        _, code = core.say("bob", f"s{rng.randrange(5)}", rng.choice(({"filter": "x < 5"}, None)), at_ms=at_ms)
        assert code in (None, "over-quota")
        within = {slack: [t for t in looked if t > at_ms - MINUTE_MS - slack] for slack in (0, 10_000)}
        assert (code == "over-quota") >= (len(within[0]) >= 3), at_ms
        assert (code == "over-quota") <= (len(within[10_000]) >= 3), at_ms
        strict += code == "over-quota" and len(within[0]) < 3
        looked += [] if code == "over-quota" else [at_ms]
    assert 30 < len(looked) < 150
    assert strict, "ten seconds are where it is not exact"


MUSTS = [
    (nobody_touches_what_is_not_his, "state.messages", "read_registration", "owned(client, id)", "id"),
    (nobody_touches_what_is_not_his, "state.messages", "may_speak", "owner == client", "True"),
    (answers_go_home, "state.control.home", "refusal", "speaker(record.topic, context.config)[1]", "None"),
    (answers_go_home, "state.messages", "addressee", "parted(id)[0]", "None"),
    (an_advertisement_is_of_its_clients_sources, "state.messages", "may_speak",
     "config.security.may_publish(client, owner)", "True"),
    (a_sink_needs_a_grant, "state.messages", "check_sink", "config.grants(sink, client)", "True"),
    (a_part_believes_no_foreign_entry, "state.control.plausible", "_bad_local", "theirs", "True"),
    (no_more_than_the_limit_are_live, "state.control.quotas", "Quotas.registration",
     "self.live(kind, client) >= quota.subscriptions", "False"),
    (no_more_than_the_limit_are_live, "state.control.quotas", "Quotas.count",
     "self._live[kind, client] += more", "pass"),
    (what_was_refused_stays_refused, "state.control.quotas", "Quotas.again",
     "record.offset < self._last[topic]", "False"),
    (a_minute_has_so_many_changes, "state.control.quotas", "Quotas.change",
     "times[-limit] > now_ms - MINUTE_MS", "False"),
    (a_new_generation_goes_on_counting, "state.control.home", "Home.restore",
     "fact.recent is not msgspec.UNSET", "False"),
    (a_new_generation_goes_on_counting, "state.control.quotas", "Quotas.recall",
     "changes[client][-1] <= told[0]", "False"),
]  # fmt: skip


@pytest.mark.parametrize("must", dict.fromkeys(must for must, *_ in MUSTS), ids=lambda must: must.__name__)
def test_must_of_own_inboxes(must):
    """The code as it is keeps this must."""
    must()


@pytest.mark.parametrize(
    ("must", "module", "function", "old", "new"),
    MUSTS,
    ids=[f"{must.__name__}-{function}" for must, _, function, _, _ in MUSTS],
)
def test_mutant_of_own_inboxes_is_caught(must, module, function, old, new):
    """The code broken on purpose fails the check of its must."""
    with Mutant(module, function, old, new), pytest.raises((AssertionError, KeyError)):
        must()


# ── more ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_of_a_client_has_one_home():
    """Whatever ids a client uses, one home key has them, so that they can be counted; shared ids are spread as ever."""
    own = {home_key("b1", "t", owned("bob", f"s{i}"), CONFIG) for i in range(50)}
    assert len(own) == 1
    assert len({home_key("b1", "t", f"s{i}", CONFIG) for i in range(50)}) == CONFIG.settings.home_shards


@pytest.mark.parametrize(
    ("limits", "good", "bad"),
    [
        ("predicates = 2", "x < 5 AND y < 5", "x < 5 AND y < 5 AND x > 1"),
        ("boxes = 2", "x = 1 OR x = 3", "x = 1 OR x = 3 OR x = 5"),
        ("share = 0.3", "x < 20", "x < 60"),
    ],
)
def test_limits_of_one_filter(limits, good, bad):
    """A filter within the limit is accepted, one beyond it refused, as a replacement too; an own limit counts more."""
    core = Core(limited(limits))
    assert core.say("bob", "s", text(good)) == ("accepted", None)
    assert core.say("bob", "s", text(bad)) == ("refused", "over-quota")
    assert core.live() == {"bob:s": json.dumps(good)}
    wider = parse(f"{TEXT}{OWN}[limits]\n{limits}\n[limits.clients.bob]\n{limits.split(' =')[0]} = 1\n")
    if "share" in limits:
        assert Core(wider).say("bob", "s", text(bad)) == ("accepted", None)
    else:
        assert Core(wider).say("bob", "s", text(good)) == ("refused", "over-quota")


def test_the_share_is_what_cost_says():
    """`[limits] share` is held against the same figure that `hilcast cost` shows."""
    event_type, grid = CONFIG.types["t"], Grid.of(CONFIG.types["t"])
    for written in ("x < 20", "x < 60 AND y > 30", "x = 3 OR y = 9", "TRUE", "x < 3 AND x > 5"):
        parsed = filter_of(written, event_type)
        share = cost(parsed, event_type, grid).cells_share
        for limit, refused in ((share, False), (max(0.0, share - 1e-9), share > 0)):
            quotas = Quotas(limited(f"share = {limit:.17f}"), "t", grid, {})
            judged = pytest.raises(HilcastError, match="over-quota") if refused else nullcontext()
            with judged:
                quotas.registration(Kind.SUBSCRIPTION, "bob", parsed, new=True)


def test_a_replay_decides_alike():
    """The same state and records give the same bytes, with quotas too."""
    config = limited("subscriptions = 2\nchanges_per_minute = 4")
    core = Core(config)
    core.take(core.record("bob", "a", text("x < 5")), core.record("bob", "b", text("x <")))
    key = str(home_key("b1", "t", "bob:a", config))
    records = [core.record("bob", id, text("x < 5"), at_ms=2000) for id in "cdef"]
    results = [handle(key, core.states[key], order, Context(config, 1, 2)) for order in (records, records[::-1])]
    assert results[0].state == results[1].state
    assert results[0].outputs == results[1].outputs


def test_without_limits_the_state_has_no_trace_of_them():
    """States of a configuration without limits are, byte for byte, what they always were."""
    core = Core(parse(TEXT))
    core.say("alice", "s1", {"client": "alice", "filter": "x < 5"})
    (state,) = core.states.values()
    assert set(msgspec.msgpack.decode(journal.opened(HOME_FORMAT, state)[0])) == {"facts", "travelling", "sequences"}


def test_what_came_by_other_inboxes_lies_dormant():
    """Registrations of shared inboxes are refused once inboxes are clients' own, and back; they stay registered."""
    shared = Core(parse(TEXT))
    shared.say("alice", "s1", {"client": "alice", "filter": "x < 5"})
    own = Core()
    own.say("alice", "s1", text("x < 5"))
    for core, config, topic in ((shared, CONFIG, "hilcast.receipts.alice"), (own, parse(TEXT), "hilcast.receipts")):
        rebuilt = rebuild(core.facts(), Context(config, 2, 0))
        (receipt,) = [o for o in rebuilt.outputs if o.topic.startswith("hilcast.receipts")]
        said = json.loads(receipt.value)
        assert (receipt.topic, said["kind"], said["code"], said["key"]) == (topic, "refused", "not-yours", "b1/t/s1")
        assert receipt.topic == "hilcast.receipts" or receipt.topic in rebuilt.topics
        facts = [decode_state(state).facts for key, state in rebuilt.states.items() if "home" in key]
        assert [fact.live for by in facts for fact in by[Kind.SUBSCRIPTION].values()] == [True]
        assert not any(b"x < 5" in blob for key, blob in rebuilt.states.items() if "home" not in key)


def test_a_grant_that_is_taken_back_makes_dormant():
    """A sink or a source that the configuration no longer grants: the registration is refused, and stays."""
    core = Core()
    core.say("alice", "s1", {"filter": "x < 5", "sink": "alerts"})
    core.say("shop", "a1", {"filter": "TRUE"}, kind="advertisements")
    less = parse(TEXT + '[security]\ninboxes = "own"\n')
    codes = sorted(
        json.loads(o.value)["code"]
        for o in rebuild(core.facts(), Context(less, 2, 0)).outputs
        if o.topic.startswith("hilcast.receipts.")
    )
    assert codes == ["not-yours", "sink-refused"]


def test_amendments_of_both_forms_reach_their_home():
    """What the registry says of an id in a namespace, or in none, is told to the home that owns it."""
    core = Core()
    core.say("alice", "s1", text("x < 5"))
    fact = core.registry[b"subscription/b1/t/alice:s1"]
    for id in ("alice:s1", "s1"):
        key = home_key("b1", "t", id, CONFIG)
        record = Record("hilcast.control", 0, 0, 0, str(key).encode(), encode(Amend(2, False, id, fact)))
        result = handle(str(key), None, [record], Context(CONFIG, 2, 0))
        assert set(decode_state(result.state).facts[Kind.SUBSCRIPTION]) == {id}
        assert [o.topic for o in result.outputs if o.topic == "hilcast.deadletter"] == []


@pytest.mark.parametrize("code", ["bad-key", "filter-syntax", "not-yours", "bad-json"])
def test_a_dead_letter_by_reference_holds_nothing_of_the_original(code):
    """With `dead_letters = "reference"` it says why and where, and not a byte of key, value, headers or quotation."""
    config = parse(TEXT + OWN.replace("[security]\n", '[security]\ndead_letters = "reference"\n', 1))
    secret = "hush"
    key, value = f"b1/t/{secret}-1".encode(), {"filter": f"{secret} <"}
    if code == "bad-key":
        key = f"{secret} b1".encode()
    body = json.dumps({"client": secret, "filter": "TRUE"} if code == "not-yours" else value).encode()
    body = f'{{"{secret}"'.encode() if code == "bad-json" else body
    record = Record("hilcast.subscriptions.bob", 0, 7, 1000, key, body, (("h", secret.encode()),))
    home = "!" if code == "bad-key" else str(home_key("b1", "t", "bob:x", config))
    result = handle(home, None, [record], Context(config, 1, 1))
    (letter,) = [o for o in result.outputs if o.topic == "hilcast.deadletter"]
    assert (letter.key, letter.value) == (None, None)
    headers = dict(letter.headers)
    assert headers == {
        "hilcast_code": code.encode(),
        "hilcast_reason": REASONS[code].encode(),
        "hilcast_topic": b"hilcast.subscriptions.bob",
        "hilcast_partition": b"0",
        "hilcast_offset": b"7",
    }
    assert not any(secret.encode() in value for value in headers.values())
    whole = handle(home, None, [record], Context(replace(config, security=CONFIG.security), 1, 1))
    (letter,) = [o for o in whole.outputs if o.topic == "hilcast.deadletter"]
    assert (letter.key, letter.value) == (key, body)
