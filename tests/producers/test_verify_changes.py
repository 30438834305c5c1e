"""`verify` where the configuration changes while events are routed: each is judged by what was in force for it.

Simulated overlays as in `test_verify.py`, whose deployments announce configurations in the registry and take them one
by one, as the job does.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.commands.diagnosis import figures, report
from producers.commands.output import Style
from producers.verify.eras import Configurations
from state.config import parse
from state.control.agreed import Refusal, configuration_record, refusal_record
from state.flooding import NEVER
from state.messages import Output, Record
from state.routing.envelope import input_topics
from tests.producers.test_verify import Running

ALL = ("b1", "b2", "b3")
TWO = (("b1",), ("b2", "b3"))


def configured(brokers=ALL, types=("quote",), attributes=("price", "volume"), cubes=2):
    """A line of brokers, types with these attributes, all integers."""
    links = list(pairwise(brokers))
    text = f'[deployment]\nprefix = "p"\n[overlay]\nbrokers = {json.dumps(brokers)}\nlinks = {json.dumps(links)}\n'
    for name in types:
        text += f'[types.{name}]\ncubes = {cubes}\nreduction = "none"\n[types.{name}.attributes]\n'
        text += "".join(f'{one} = {{ kind = "int", min = 0, max = 20 }}\n' for one in attributes)
    return parse(text)


class Changing(Running):
    """An overlay whose configuration is in the registry, with a version, and changes."""

    def __init__(self, config=None, hosting=(ALL,), seed=1):
        super().__init__(hosting, seed, config or configured())
        self.version = 0
        self.apply(self.config)
        for number in range(len(hosting)):
            self.take(number)

    def apply(self, config):
        """Announce a configuration; nobody goes by it yet."""
        self.version, self.config = self.version + 1, config
        self.log.append(Output(self.topics.registry, *configuration_record(self.version, config.shared)))

    def take(self, number):
        """Have one deployment begin a generation with the configuration that was announced last."""
        deployment, brokers = self.world.deployments[number], self.config.overlay.brokers
        elsewhere = {b for d in self.world.deployments if d is not deployment for b in d.hosts}
        hosts = tuple(b for b in brokers if b not in elsewhere)
        mine = replace(self.config.deployment, name=deployment.name, hosts=hosts)
        deployment.config = replace(self.config, deployment=mine)
        deployment.grids = self.world.grids(self.config)
        deployment.begin()
        self.read[number] = dict.fromkeys(input_topics(deployment.config), 0) | self.read[number]
        self.taken[deployment.name] = self.version
        self._progress(deployment, "control", deployment.positions)

    def change_to(self, config):
        """Everybody takes it, and all is at rest."""
        self.apply(config)
        for number in range(len(self.world.deployments)):
            self.take(number)
        self.rest()

    def subscribe(self, key, client, filter):
        self.world.send(self.topics.subscriptions, key, {"client": client, "filter": filter})
        self.rest()

    def send(self, id, value, broker="b1", type="quote"):
        named = {"specversion": "1.0", "id": id, "source": "test", "type": type, "broker": broker}
        self._append(self.topics.publications, value, b"k", [(f"ce_{n}", v.encode()) for n, v in named.items()])

    def sends(self, *ids, **more):
        """Send and route events of price 1."""
        for id in ids:
            self.send(id, more.get("value", {"price": 1}), more.get("broker", "b1"), more.get("type", "quote"))
        self.rest()

    def compact(self):
        """Have the registry forget every version but the last, and every fact that has another after it."""
        self.log.compact(self.topics.registry)
        self.log.topics[self.topics.registry].sort(key=lambda record: record.offset)

    def got(self, client):
        return {dict(r.headers)["ce_id"].decode() for r in self.log.topics[self.topics.deliver(client)]}

    def lacking(self, client, id):
        """The judgement if one delivery were lost."""
        topic = self.topics.deliver(client)
        whole = self.log.topics[topic]
        lost = [r for r in whole if dict(r.headers)["ce_id"] == id.encode()]
        assert lost, f"{client} never got {id}"
        self.log.topics[topic] = [
            msgspec.structs.replace(r, headers=(), key=None, value=None) if r in lost else r for r in whole
        ]
        found = self.verify()
        self.log.topics[topic] = whole
        return found

    def with_one_more(self, client, id, like, ids):
        """The judgement if an event had been delivered to a client as well; `like`: a client that did get it."""
        (record,) = [r for r in self.log.topics[self.topics.deliver(like)] if dict(r.headers)["ce_id"] == id.encode()]
        changed = {"hilcast_client": client.encode(), "hilcast_subscriptions": ids.encode()}
        changed["hilcast_delivery"] = f"{id}-{client}".encode()
        headers = tuple((n, changed.get(n, v)) for n, v in record.headers)
        self.log.append(Output(self.topics.deliver(client), record.key, record.value, headers))
        found = self.verify()
        self.log.topics[self.topics.deliver(client)].pop()
        return found


def fine(running):
    found = running.verify()
    assert found.ok, found.findings
    return found


def test_a_type_that_is_added():
    """Before it its events must be refused, afterwards they must be delivered."""
    running = Changing()
    running.subscribe("b3/quote/s1", "alice", "price < 5")
    running.sends("q1")
    running.sends("t1", type="trade")
    running.change_to(configured(types=("quote", "trade")))
    running.subscribe("b3/trade/s2", "bob", "price < 5")
    running.sends("q2")
    running.sends("t2", type="trade")
    assert (running.got("alice"), running.got("bob")) == ({"q1", "q2"}, {"t2"})
    found = fine(running)
    assert (found.published, found.expected, found.refused, found.undecided) == (4, 3, 1, 0)
    for client, id in (("alice", "q1"), ("alice", "q2"), ("bob", "t2")):
        assert running.lacking(client, id).missing == 1
    running.log.topics[running.topics.deadletter].clear()
    assert running.verify().unanswered == 1, "at that time it could not be used"


def test_an_attribute_that_is_added():
    """Only what is sent once it is there can be asked for by it; what was asked for before goes on."""
    running = Changing(configured(attributes=("price",)))
    running.subscribe("b3/quote/s1", "alice", "price < 5")
    many = {"price": 1, "volume": 9}
    running.sends("q1", value=many)
    running.change_to(configured())
    running.subscribe("b3/quote/s2", "bob", "volume > 3")
    running.sends("q2", value=many)
    running.sends("q3")
    assert (running.got("alice"), running.got("bob")) == ({"q1", "q2", "q3"}, {"q2"})
    assert fine(running).expected == 4
    for client, id in (("alice", "q1"), ("alice", "q3"), ("bob", "q2")):
        assert running.lacking(client, id).missing == 1
    assert running.with_one_more("bob", "q1", like="alice", ids="s2").wrong == 1


def test_a_type_that_is_removed():
    """What was delivered of it is right, and a loss of that time is found; afterwards nothing is to be delivered."""
    running = Changing(configured(types=("quote", "trade")))
    running.subscribe("b3/trade/s1", "alice", "price < 5")
    running.subscribe("b3/quote/s2", "bob", "price < 5")
    running.sends("t1", type="trade")
    running.change_to(configured())
    running.sends("t2", type="trade")
    running.sends("q1")
    assert running.got("alice") == {"t1"}
    assert fine(running).expected == 2
    assert running.lacking("alice", "t1").missing == 1
    assert running.with_one_more("alice", "q1", like="bob", ids="s1").wrong == 1


def test_a_broker_that_goes_and_one_that_comes():
    """Whose broker is gone gets nothing any more, and what is sent there is refused; a new one is as good as any."""
    running = Changing()
    running.subscribe("b3/quote/s1", "alice", "price < 5")
    running.subscribe("b1/quote/s2", "bob", "price < 5")
    running.sends("q1")
    running.change_to(configured(brokers=("b1", "b2", "b4")))
    running.subscribe("b4/quote/s3", "carol", "price < 5")
    running.sends("q2")
    running.sends("q3", broker="b3")
    running.sends("q4", broker="b4")
    assert (running.got("alice"), running.got("carol")) == ({"q1"}, {"q2", "q4"})
    found = fine(running)
    assert (found.expected, found.refused, found.pending) == (6, 1, 0)
    assert running.lacking("alice", "q1").missing == 1
    assert running.lacking("carol", "q4").missing == 1
    assert running.with_one_more("alice", "q2", like="bob", ids="s1").wrong == 1


def test_a_filter_that_falls_asleep_and_wakes():
    """Each time is judged by itself: wanted, nothing, wanted again."""
    running = Changing()
    running.subscribe("b3/quote/s1", "alice", "volume > 3")
    running.subscribe("b1/quote/s2", "bob", "price < 5")
    many = {"price": 1, "volume": 9}
    running.sends("q1", value=many)
    running.change_to(configured(attributes=("price",)))
    running.sends("q2", value=many)
    running.change_to(configured())
    running.sends("q3", value=many)
    assert running.got("alice") == {"q1", "q3"}
    found = fine(running)
    assert (found.expected, found.undecided) == (5, 0)
    for id in ("q1", "q3"):
        assert running.lacking("alice", id).missing == 1
    assert running.with_one_more("alice", "q2", like="bob", ids="s1").wrong == 1


def test_while_deployments_differ_either_configuration_is_right():
    """From the announcement until all have taken it, what only one of the two wants may be delivered or not."""
    running = Changing(hosting=TWO)
    running.subscribe("b1/quote/s1", "alice", "volume > 3")
    running.subscribe("b3/quote/s2", "bob", "volume > 3")
    running.subscribe("b3/quote/s3", "carol", "price < 5")
    many = {"price": 1, "volume": 9}
    running.apply(configured(attributes=("price",)))
    running.sends("old", value=many)
    running.take(0)
    running.sends("both", value=many)
    running.take(1)
    running.sends("late", value=many)
    running.sends("new", value=many)
    assert running.got("alice") == {"old"}, "its broker went over first"
    assert running.got("bob") >= {"old"}
    assert running.got("carol") == {"old", "both", "late", "new"}
    found = fine(running)
    assert found.undecided == 4, "of alice and bob, for the two that were sent meanwhile"
    assert found.expected == 4, "those of carol"
    for id in ("old", "both", "late", "new"):
        assert running.lacking("carol", id).missing == 1
    for id in running.got("bob"):
        assert running.lacking("bob", id).ok
    assert running.with_one_more("alice", "new", like="carol", ids="s1").wrong == 1


def test_what_comes_into_force_while_deployments_differ_is_in_force_once_they_are_one():
    """A subscription of that time cannot be demanded before every deployment has the configuration."""
    running = Changing(hosting=TWO)
    running.apply(configured(types=("quote", "trade")))
    running.take(0)
    running.subscribe("b1/quote/s1", "alice", "price < 5")
    running.sends("early", broker="b3")
    assert fine(running).expected == 0
    running.take(1)
    running.rest()
    running.sends("late", broker="b3")
    assert fine(running).expected == 1
    assert running.lacking("alice", "late").missing == 1


def test_what_is_no_longer_held_is_not_judged_and_said():
    """After compaction earlier publications are counted as unjudged; later ones are judged as ever."""
    running = Changing(configured(types=("quote", "trade")))
    running.subscribe("b3/trade/s1", "alice", "price < 5")
    running.subscribe("b3/quote/s2", "bob", "price < 5")
    running.sends("t1", "t2", type="trade")
    running.change_to(configured())
    running.sends("q1")
    assert fine(running).unjudged == 0
    running.compact()
    found = fine(running)
    assert (found.unjudged, found.published, found.expected, found.delivered) == (2, 1, 1, 1)
    assert figures(found)["unjudged"] == 2
    assert "2 publications may have been routed by a configuration that the registry no longer holds" in report(
        found, Style()
    )
    assert running.lacking("alice", "t1").ok
    assert running.lacking("bob", "q1").missing == 1


def test_a_configuration_that_makes_no_difference_leaves_nothing_undecided():
    """Other cubes, or a mere rebuild, are the same to whoever judges."""
    running = Changing()
    running.subscribe("b3/quote/s1", "alice", "price < 5")
    running.apply(configured(cubes=4))
    running.sends("q1")
    running.take(0)
    running.sends("q2")
    running.apply(configured(cubes=4))
    running.sends("q3")
    found = fine(running)
    assert (found.expected, found.undecided) == (3, 0)


VARIANTS = [
    configured(),
    configured(brokers=("b1", "b2", "b4")),
    configured(types=("quote", "trade")),
    configured(attributes=("price",)),
    configured(brokers=("b2", "b1", "b3"), attributes=("volume", "price")),
]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(ALL,), TWO]), st.booleans())
def test_whatever_changes_nothing_right_is_called_wrong(seed, hosting, compacted):
    """Registrations, publications and configurations change in any order; then after a fence all is decided."""
    running = Changing(hosting=hosting, seed=seed)
    rng = running.rng

    def change():
        type_name = rng.choice(["quote", "trade"])
        key = f"{rng.choice(['b1', 'b2', 'b3', 'b4'])}/{type_name}/s{rng.randint(0, 3)}"
        filter = rng.choice(["price < 5", "volume > 3", "price < 9 AND volume > 1", "TRUE"])
        value = {"client": rng.choice(["alice", "bob"]), "filter": filter}
        running.world.send(running.topics.subscriptions, key, None if rng.random() < 0.2 else value)

    def publish():
        running.sent += 1
        value = {"price": rng.randint(0, 10), "volume": rng.choice([2, 9, "much"])}
        type_name = rng.choice(["quote", "quote", "trade"])
        running.send(str(running.sent), value, rng.choice(["b1", "b2", "b3", "b4"]), type_name)

    def take():
        behind = [n for n, d in enumerate(running.world.deployments) if running.taken[d.name] < running.version]
        if behind:
            running.take(rng.choice(behind))
        else:
            running.apply(rng.choice(VARIANTS))

    actions = [change, publish, publish, running.control, running.control, running.route, take]
    for _ in range(50):
        rng.choice(actions)()
    fine(running)
    while any(running.taken[d.name] < running.version for d in running.world.deployments):
        take()
    running.rest()
    if compacted:
        running.compact()
    assert fine(running).pending == 0


# ── eras ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def announced(*versions):
    """Registry records: version, time, configuration."""
    records = []
    for offset, (version, at, config) in enumerate(versions):
        records.append(Record("p.registry", 0, offset, at, *configuration_record(version, config.shared)))
    return records


def said(*lines):
    """Progress records: time, deployment, hosts, version."""
    records = []
    for offset, (at, name, hosts, version) in enumerate(lines):
        line = {"deployment": name, "query": "control", "hosts": hosts, "offsets": {}}
        line |= {} if version is None else {"configuration": version}
        records.append(Record("p.progress", 0, offset, at, b"control/x", json.dumps(line).encode()))
    return records


A, B, C = VARIANTS[0], VARIANTS[2], VARIANTS[3]
ONE = list(ALL)


def spans(eras):
    return [(era.since_ms, era.in_force_ms, era.until_ms) for era in eras]


def test_eras_begin_with_the_announcement_and_end_when_the_next_one_is_in_force():
    """The first one has no beginning, the last one no end; lines that say nothing of it are read, and prove nothing."""
    lines = said((5, "d", ONE, None), (20, "d", ONE, 1), (60, "d", ONE, None), (70, "d", ONE, 2))
    found = Configurations(A, announced((1, 10, A), (2, 50, B)), lines).eras()
    assert spans(found) == [(-NEVER, 20, 70), (50, 70, NEVER)]
    assert [era.config.version for era in found] == [1, 2]
    assert [set(era.config.types) for era in found] == [{"quote"}, {"quote", "trade"}]


def test_a_configuration_is_in_force_when_the_last_broker_has_it():
    """Deployments follow one by one; until the last one does they are mixed."""
    lines = said((20, "d", ["b1"], 1), (21, "e", ["b2", "b3"], 1), (60, "d", ["b1"], 2), (90, "e", ["b2", "b3"], 2))
    known = Configurations(A, announced((1, 10, A), (2, 50, B)), lines)
    assert spans(known.eras()) == [(-NEVER, 21, 90), (50, 90, NEVER)]
    assert known.mixed() == [(20, 21), (60, 90)]
    behind = Configurations(A, announced((1, 10, A), (2, 50, B)), lines[:3])
    assert spans(behind.eras()) == [(-NEVER, 21, NEVER), (50, NEVER, NEVER)]


def test_a_deployment_that_stays_behind_with_a_removed_broker_keeps_the_old_era_open():
    """It is still heard of, so it may still route by what it has; one whose brokers others took over does not."""
    alone = configured(brokers=("b1", "b2"))
    lines = said((20, "d", ["b1", "b2"], 1), (20, "e", ["b3"], 1), (60, "d", ["b1", "b2"], 2), (70, "e", ["b3"], 1))
    assert Configurations(A, announced((1, 10, A), (2, 50, alone)), lines).eras()[0].until_ms == NEVER
    assert Configurations(A, announced((1, 10, A), (2, 50, alone)), lines[:3]).eras()[0].until_ms == 60
    moved = said((20, "d", ONE, 1), (55, "d", ONE, 1), (60, "e", ONE, 2))
    assert Configurations(A, announced((1, 10, A), (2, 50, B)), moved).eras()[0].until_ms == 60


def test_versions_that_are_gone_have_their_time_too():
    """Compaction keeps the last ones: what was before the first of them is unknown until that one was in force."""
    lines = said((20, "d", ONE, 1), (60, "d", ONE, 2), (90, "d", ONE, 3))
    found = Configurations(A, announced((2, 50, B), (3, 80, A)), lines).eras()
    assert [era.config is None for era in found] == [True, False, False]
    assert spans(found) == [(-NEVER, NEVER, 60), (50, 60, 90), (80, 90, NEVER)]
    gap = Configurations(A, announced((1, 10, A), (3, 80, B)), lines).eras()
    assert [era.config is None for era in gap] == [False, True, False]
    assert (gap[1].since_ms, gap[1].until_ms) == (10, 90)


def test_two_under_one_version_may_both_have_been_taken():
    """Some may have taken the first before the second counted; what is said again or late changes nothing."""
    lines = said((20, "d", ONE, 1), (60, "d", ONE, 2), (90, "d", ONE, 3))
    records = announced((1, 10, A), (2, 50, B), (2, 51, C), (2, 52, C), (1, 53, A), (3, 80, C))
    found = Configurations(A, records, lines).eras()
    assert spans(found) == [(-NEVER, 20, 60), (50, 60, 90), (51, 60, NEVER)]


def test_a_version_that_all_have_refused_was_never_in_force():
    """It ends nothing, and judges nothing; one that somebody took counts."""
    records = announced((1, 10, A), (2, 50, B), (3, 80, C))
    records.append(Record("p.registry", 0, 3, 55, *refusal_record("d", Refusal(2, ["no"]))))
    lines = said((20, "d", ONE, 1), (90, "d", ONE, 3))
    assert spans(Configurations(A, records, lines).eras()) == [(-NEVER, 20, 90), (80, 90, NEVER)]
    taken = [*lines, *said((60, "e", ["b1"], 2))]
    assert len(Configurations(A, records, taken).eras()) == 3


def test_what_is_announced_while_topics_are_read_is_not_judged_by():
    """Its topics were not looked for: what may have been routed by it is unjudged."""
    records = announced((1, 10, A), (2, 50, B))
    known = Configurations(A, records[:1], [])
    (late,) = known.unread(records)
    assert (late.config, late.since_ms) == (None, 50)
    assert known.unread(records[:1]) == []


def test_hosts_of_this_file_need_not_be_brokers_of_every_version():
    """A deployment that hosts a broker of now can judge by configurations that lack it."""
    file = parse(
        '[deployment]\nprefix = "p"\nhosts = ["b4"]\n[overlay]\nbrokers = ["b1", "b4"]\nlinks = [["b1", "b4"]]\n'
        '[types.quote.attributes]\nprice = { kind = "int" }\n'
    )
    (era,) = Configurations(file, announced((1, 10, A)), []).eras()
    assert era.config is not None
    assert era.config.overlay.brokers == ALL


@pytest.mark.parametrize("value", [b"no json", b'{"version": 2, "shared": {}}', b'{"version": 2, "shared": []}'])
def test_a_configuration_that_nobody_can_read(value):
    """What is no record of ours is passed over; one that has a version, and no sense, cannot be judged by."""
    strange = Record("p.registry", 0, 1, 50, b"configuration", value)
    found = Configurations(A, [*announced((1, 10, A)), strange], said((20, "d", ONE, 1))).eras()
    assert found[0].config is not None
    assert [era.config for era in found[1:]] == ([] if value == b"no json" else [None])
