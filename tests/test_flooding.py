"""The flooding oracle against plain loops, and every kind of error that it must catch."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.fence import Fence
from state.config import parse as parse_config
from state.filters import evaluate
from state.filters.grammar import parse
from state.flooding import (
    NEVER,
    Claim,
    ControlHistory,
    Delivered,
    Progress,
    Publication,
    Reading,
    Stand,
    judge,
    judge_by,
)
from state.plain_filters import PlainEvents
from state.space.event_type import Attribute, EventType
from tests import oracle

QUOTE = EventType("quote", (Attribute("price", "int"), Attribute("symbol", "text")))
PLAIN = {"price": {"kind": "int"}, "symbol": {"kind": "text"}}
FILTERS = ["price < 3", "price >= 2", "price IN (0, 4)", "symbol LIKE 'a%'", "symbol = 'abcdefghij'", "NOT (price = 1)"]
TYPES = {"quote": QUOTE}


def stand(text, since, in_force, client="alice", destination="d.alice"):
    return Stand(since, in_force, client, destination, None if text is None else parse(text, QUOTE))


def gone(since, in_force):
    return Stand(since, in_force)


def claim(*stands, id="s1", broker="b1"):
    return Claim(broker, "quote", id, tuple(stands))


def publication(id, sent, routed=None, price=1, symbol="a", **more):
    value = json.dumps({"price": price, "symbol": symbol}).encode()
    routed = sent if routed is None else routed
    return Publication(b"test", str(id).encode(), "b1", "quote", value, value, sent, routed, routed < NEVER, **more)


def copy(publication, ids, client="alice", topic=None, **more):
    name = f"{publication.id.decode()}/{client}"
    topic = f"d.{client}" if topic is None else topic
    made = Delivered(topic, client, publication.source, publication.id, name, ids, publication.content)
    return made._replace(**more)


# ── in force ────────────────────────────────────────────────────────────────────────────────────────────────────


def fence_by_hand(said, brokers, times, progress, rounds):
    """What `hilcast wait` would do if it were begun at `said` and looked without pause."""
    now = said
    for _ in range(rounds):
        ends = {
            topic: max([first, *(offset + 1 for offset, at in records if at <= now)])
            for topic, (first, records) in times.items()
        }
        moments = sorted({now, *(record.time_ms for record in progress if record.time_ms > now)})
        for moment in moments:
            past = [record for record in progress if record.time_ms <= moment]
            if all(
                any(
                    broker in record.hosts and all(record.offsets.get(t, 0) >= end for t, end in ends.items())
                    for record in past
                )
                for broker in brokers
            ):
                now = moment
                break
        else:
            return NEVER
    return now


HOSTING = [
    [("x", ("b1", "b2"))],
    [("x", ("b1",)), ("y", ("b2",))],
    [("x", ("b1", "b2")), ("y", ("b2",))],
]


@st.composite
def control_worlds(draw):
    times = {}
    for topic in ("in", "control"):
        at = sorted(draw(st.lists(st.integers(0, 30), max_size=6)))
        first = offset = draw(st.integers(0, 2))
        records = []
        for moment in at:
            offset += draw(st.sampled_from([0, 0, 3]))  # a transaction ended or was taken back
            records.append((offset, moment))
            offset += 1
        times[topic] = (first, records)
    progress = []
    for deployment, hosts in draw(st.sampled_from(HOSTING)):
        read = {topic: first for topic, (first, _) in times.items()}
        for moment in sorted(draw(st.lists(st.integers(0, 40), max_size=6))):
            for topic, (first, records) in times.items():
                end = max([first, *(offset + 1 for offset, t in records if t <= moment)])
                read[topic] = draw(st.integers(min(read[topic], end), end))
            progress.append(Progress(moment, deployment, hosts, dict(read)))
    return times, progress, draw(st.integers(1, 4))


@settings(max_examples=200, deadline=None)
@given(control_worlds(), st.integers(0, 40))
def test_in_force_is_what_a_fence_would_have_said(world, said):
    """The simulated fence says, for any history, the moment at which a fence by hand would have returned."""
    times, progress, count = world
    history = ControlHistory(("b1", "b2"), times, progress, count)
    assert history.in_force(np.array([float(said)]))[0] == fence_by_hand(said, ("b1", "b2"), times, progress, count)


def test_offsets_that_nobody_reads_are_no_progress():
    """Behind a transaction that was taken back a change is in force when its offset was read, not its number."""
    times = {"in": (0, [(0, 1.0), (150, 5.0)])}
    progress = [Progress(2, "x", ("b1",), {"in": 1}), Progress(4, "x", ("b1",), {"in": 150})]
    progress.append(Progress(9, "x", ("b1",), {"in": 151}))
    assert ControlHistory(("b1",), times, progress, 1).in_force(np.array([5.0]))[0] == 9


def test_offsets_of_a_topic_that_was_made_again_are_no_progress():
    """Its name had read to 500 before it was there: a change is in force when this one was read."""
    progress = [Progress(at, "x", ("b1",), {"in": n}) for at, n in ((2, 500), (7, 0), (9, 2))]
    history = ControlHistory(("b1",), {"in": (0, [(0, 5.0), (1, 6.0)])}, progress, 1)
    assert history.in_force(np.array([1.0, 6.0])).tolist() == [2.0, 9.0]


def test_a_broker_that_nobody_hosts_is_never_in_force():
    """Without progress of some broker's deployment nothing is in force."""
    history = ControlHistory(("b1", "b2"), {"in": (0, [(0, 5)])}, [Progress(9, "x", ("b1",), {"in": 1})], 3)
    assert history.in_force(np.array([5.0]))[0] == NEVER


def test_nothing_comes_into_force_while_deployments_go_by_different_configurations():
    """What was read meanwhile is in force once they are one again; before and after it is as ever."""
    times = {"in": (0, [(0, 5), (1, 15), (2, 25)])}
    progress = [Progress(at, "x", ("b1",), {"in": n}) for n, at in ((1, 6), (2, 16), (3, 26))]
    history = ControlHistory(("b1",), times, progress, 2, [(12.0, 20.0), (30.0, NEVER)])
    assert history.in_force(np.array([5.0, 15.0, 25.0, 31.0])).tolist() == [6.0, 20.0, 26.0, NEVER]


def test_the_fence_makes_a_round_for_every_step(monkeypatch):
    """`hilcast wait` looks once a hop (there and back with advertisements), for home, cube and a repaired gap; the
    oracle is given the same number."""
    text = """
    [overlay]
    brokers = ["a", "b", "c"]
    links = [["a", "b"], ["b", "c"]]
    [types.t]
    advertisements = {ads}
    [types.t.attributes]
    n = {{ kind = "int" }}
    """
    for ads, wanted in (("true", 2 * 2 + 4), ("false", 2 + 4)):
        fence, looks = object.__new__(Fence), []
        fence.config = parse_config(text.format(ads=ads))
        monkeypatch.setattr(fence, "_ends", lambda looks=looks: looks.append(1) or {}, raising=False)
        monkeypatch.setattr(fence, "_behind", lambda ends: [], raising=False)
        assert fence.wait() == []
        assert len(looks) == fence.config.fence_rounds() == wanted


# ── judging, against plain loops ────────────────────────────────────────────────────────────────────────────────


def possible_stands(one, event):
    """The stands of a claim that may have been acted on when the event was routed."""
    every = [(None, None, None, -NEVER, -NEVER)]
    every += [(s.owner, s.destination, text, s.since_ms, s.in_force_ms) for s, text in one.history]
    found = []
    for i, (owner, destination, text, since, _) in enumerate(every):
        replaced = any(later[4] < event.sent_ms for later in every[i + 1 :])
        if since <= event.routed_ms and not replaced:
            found.append((owner, destination, text))
    return found


def naive(claims, events):
    """(event, client, destination, id) that may and that must be delivered."""
    may, must = set(), set()
    for one in claims:
        for event in events:
            attributes = json.loads(event.value)
            wants = [
                (owner, destination) if owner and oracle.evaluate(text, attributes, PLAIN) else None
                for owner, destination, text in possible_stands(one, event)
            ]
            for target in {w for w in wants if w}:
                code = (event.id, *target, one.id)
                may.add(code)
                if all(w == target for w in wants) and event.complete:
                    must.add(code)
    return may, must


@st.composite
def worlds(draw):
    claims = []
    for number in range(draw(st.integers(0, 4))):
        history, now = [], 0
        for _ in range(draw(st.integers(1, 3))):
            now += draw(st.integers(1, 8))
            in_force = now + draw(st.integers(0, 6))
            text = draw(st.sampled_from([*FILTERS, None]))
            client = draw(st.sampled_from(["alice", "bob"]))
            made = gone(now, in_force) if text is None else stand(text, now, in_force, client, f"d.{client}")
            history.append((made, text))
        one = Claim("b1", "quote", f"s{number % 3}", tuple(made for made, _ in history))
        claims.append(SimpleNamespace(claim=one, history=history, id=one.id))
    events = []
    for number in range(draw(st.integers(1, 6))):
        sent = draw(st.integers(0, 30))
        routed = draw(st.one_of(st.just(NEVER), st.integers(sent, sent + 6)))
        symbol = draw(st.sampled_from(["a", "b", "abcdefghij", "abcdefghi"]))
        events.append(publication(number, sent, routed, draw(st.integers(0, 4)), symbol))
    return claims, events


def as_deliveries(codes, events):
    """One delivery for each event and target, naming all ids."""
    by_id = {event.id: event for event in events}
    united = {}
    for id, client, destination, name in sorted(codes):
        united.setdefault((id, client, destination), []).append(name)
    return [copy(by_id[id], ",".join(sorted(n)), client, topic) for (id, client, topic), n in united.items()]


@settings(max_examples=250, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_every_allowed_outcome_passes_and_every_other_is_found(world, rng: random.Random):
    """All of must with any part of may passes; without one of must, or with one beyond may, it is found and counted."""
    claims, events = world
    may, must = naive(claims, events)
    plain = [one.claim for one in claims]
    chosen = must | {code for code in sorted(may - must) if rng.random() < 0.5}
    fine = judge(TYPES, events, as_deliveries(chosen, events), plain)
    assert fine.ok, fine.findings
    assert fine.expected == len({code[:3] for code in must})
    assert fine.undecided == len({code[:3] for code in may} - {code[:3] for code in must})
    assert fine.delivered == len({code[:3] for code in chosen})
    if must:
        lost = rng.choice(sorted(must))
        short = judge(TYPES, events, as_deliveries({c for c in chosen if c[:3] != lost[:3]}, events), plain)
        assert (short.missing, short.wrong, short.ok) == (1, 0, False)
        kept = {c for c in chosen if c != lost}
        if any(c[:3] == lost[:3] for c in kept):
            unnamed = judge(TYPES, events, as_deliveries(kept, events), plain)
            assert (unnamed.missing, unnamed.missing_ids, unnamed.ok) == (0, 1, False)
    beyond = {(e.id, c, f"d.{c}", f"s{n}") for e in events for c in ("alice", "bob") for n in range(3)} - may
    if beyond:
        extra = rng.choice(sorted(beyond))
        more = judge(TYPES, events, as_deliveries({*chosen, extra}, events), plain)
        named = any(c[:3] == extra[:3] for c in chosen)
        if named or extra[:3] in {code[:3] for code in may}:
            assert (more.wrong, more.wrong_ids, more.ok) == (0, 1, False)
        else:
            assert (more.wrong, more.ok) == (1, False)


# ── each error by itself ────────────────────────────────────────────────────────────────────────────────────────

STANDING = claim(stand("price < 5", 10, 20))


def test_a_dropped_delivery_is_missing():
    """What was sent after the subscription was in force, and matches, must be there."""
    event = publication("e", 21)
    found = judge(TYPES, [event], [], [STANDING])
    assert (found.missing, found.expected, found.ok) == (1, 1, False)
    assert "wanted by s1" in str(found.findings[0])


def test_before_it_is_in_force_both_answers_are_right():
    """Sent at or before the moment of being in force, routed after the subscription was sent: undecided."""
    event = publication("e", 20)
    for deliveries in ([], [copy(event, "s1")]):
        found = judge(TYPES, [event], deliveries, [STANDING])
        assert (found.ok, found.undecided, found.expected) == (True, 1, 0)


def test_what_was_routed_before_the_subscription_was_sent_must_not_come():
    """A delivery of what was routed before the change existed is wrong."""
    event = publication("e", 5, 9)
    found = judge(TYPES, [event], [copy(event, "s1")], [STANDING])
    assert (found.wrong, found.ok) == (1, False)


def test_what_does_not_match_is_wrong():
    """A delivery that no filter wanted is wrong; so is one to a client that nobody subscribed."""
    event = publication("e", 30, price=7)
    for client in ("alice", "eve"):
        found = judge(TYPES, [event], [copy(event, "s1", client)], [STANDING])
        assert (found.wrong, found.missing, found.ok) == (1, 0, False)


def test_a_delivery_to_another_topic_is_wrong_and_the_right_one_missing():
    """The destination is part of the promise: a sink is not the client's own topic."""
    event = publication("e", 30)
    found = judge(TYPES, [event], [copy(event, "s1", topic="elsewhere")], [STANDING])
    assert (found.wrong, found.missing) == (1, 1)


def test_repeats_are_counted_and_forgiven():
    """Copies with the same delivery id are repeats; one that brings another id is the part of another deployment."""
    event = publication("e", 30)
    two = [STANDING, claim(stand("price < 9", 10, 20), id="s2", broker="b2")]
    copies = [copy(event, "s1"), copy(event, "s2"), copy(event, "s1"), copy(event, "s2")]
    found = judge(TYPES, [event], copies, two)
    assert (found.ok, found.repeats, found.delivered) == (True, 2, 1)


def test_a_repeat_with_another_delivery_id_is_wrong():
    """A client could not recognise it."""
    event = publication("e", 30)
    found = judge(TYPES, [event], [copy(event, "s1"), copy(event, "s1", delivery="other")], [STANDING])
    assert (found.wrong, found.ok) == (1, False)


def test_one_delivery_id_for_two_publications_is_wrong():
    """A client would take the second for a repeat of the first."""
    events = [publication("e", 30), publication("f", 30)]
    copies = [copy(event, "s1", delivery="same") for event in events]
    found = judge(TYPES, events, copies, [STANDING])
    assert (found.wrong, found.ok) == (1, False)


def test_altered_bytes_are_wrong():
    """Key and value are forwarded byte for byte."""
    event = publication("e", 30)
    found = judge(TYPES, [event], [copy(event, "s1", content=b"other")], [STANDING])
    assert (found.wrong, found.missing) == (1, 0)


def test_an_invented_publication_is_wrong_unless_it_may_have_been_deleted():
    """A delivery without a publication is wrong; where Kafka has deleted publications it is only unknown."""
    event = publication("e", 30)
    invented = copy(publication("ghost", 30), "s1")
    assert judge(TYPES, [event], [copy(event, "s1"), invented], [STANDING]).wrong == 1
    forgiven = judge(TYPES, [event], [copy(event, "s1"), invented], [STANDING], cut_publications=True)
    assert (forgiven.ok, forgiven.unknown) == (True, 1)


def test_ids_that_were_cut_are_not_missing():
    """A list of ids that ends in an ellipsis is not held to be complete, but what it names must be right."""
    event = publication("e", 30)
    two = [STANDING, claim(stand("price < 9", 10, 20), id="s2")]
    assert judge(TYPES, [event], [copy(event, "s1,…")], two).ok
    assert judge(TYPES, [event], [copy(event, "s9,…")], two).wrong_ids == 1


def test_withdrawal_ends_it_once_in_force():
    """After a withdrawal is in force a delivery is wrong; before it was sent, a missing one is missing."""
    history = claim(stand("price < 5", 10, 20), gone(30, 40))
    before, between, after = publication("e", 25, 28), publication("f", 35), publication("g", 41)
    found = judge(TYPES, [before, between, after], [copy(after, "s1")], [history])
    assert (found.missing, found.wrong, found.undecided) == (1, 1, 1)


def test_a_replacement_has_no_gap_for_what_matches_both():
    """While a filter is replaced what matches both must come, what matches one may, what matches none must not."""
    history = claim(stand("price < 5", 10, 20), stand("price > 2", 30, 40))
    events = {price: publication(price, 32, 36, price=price) for price in (1, 3, 9)}
    both = judge(TYPES, list(events.values()), [], [history])
    assert (both.missing, both.undecided) == (1, 2)
    assert both.findings[0].id == "3"


def test_an_unknown_filter_may_match_and_must_not():
    """Of a filter that nobody can read any more every delivery is believed and none is demanded."""
    event = publication("e", 30)
    history = claim(stand(None, 10, 20))
    for deliveries in ([], [copy(event, "s1")]):
        assert judge(TYPES, [event], deliveries, [history]).ok


def test_what_is_not_routed_yet_is_pending():
    """A publication without complete routing is not missing anywhere; a wrong delivery of it is still wrong."""
    event, other = publication("e", 30, NEVER), publication("f", 30, NEVER, price=9)
    found = judge(TYPES, [event, other], [copy(other, "s1")], [STANDING])
    assert (found.pending, found.missing, found.wrong) == (2, 0, 1)


def test_a_refused_publication_leads_nowhere_if_it_is_bad():
    """A dead letter excuses what cannot be used; what could have been used is missing all the same."""
    bad = publication("e", 30, fault="bad-event", refused="bad-event")
    good = publication("f", 30, refused="bad-event")
    assert judge(TYPES, [bad], [], [STANDING]).ok
    found = judge(TYPES, [good], [], [STANDING])
    assert (found.missing, found.refused) == (1, 1)
    assert "refused as bad-event" in found.findings[0].detail


def test_a_bad_publication_without_a_dead_letter_is_unanswered():
    """Nothing vanishes: what cannot be used must have a dead letter, whether its envelope is bad or its value."""
    for bad in (publication("e", 30, fault="unknown-broker"), replace(publication("e", 30), value=b"[]")):
        assert judge(TYPES, [bad], [], [STANDING]).unanswered == 1
        assert judge(TYPES, [replace(bad, refused="bad-event")], [], [STANDING]).ok


def test_too_large_is_believed_of_what_is_large():
    """A refusal as too large excuses a large publication only."""
    large = replace(publication("e", 30, refused="too-large"), value=b'{"price":1,"x":"' + b"x" * 900_000 + b'"}')
    assert judge(TYPES, [large], [], [STANDING]).ok
    heavy = replace(publication("e", 30, refused="too-large"), size=900_000)
    assert judge(TYPES, [heavy], [], [STANDING]).missing == 0
    assert judge(TYPES, [publication("f", 30, refused="too-large")], [], [STANDING]).missing == 1


def test_where_advertising_is_a_duty_it_is_judged_too():
    """Not advertised: must be refused and not delivered. Advertised: must be delivered. On its way: either."""
    types = {"quote": replace(QUOTE, advertisements=True)}
    advertised = [Claim("b1", "quote", "a1", (Stand(10, 20, "test", "", parse("price < 3", QUOTE)),))]
    inside, outside, early = publication("e", 30), publication("f", 30, price=4), publication("g", 15, 40)
    always = [claim(stand("price < 5", 0, 1))]
    found = judge(types, [inside, outside, early], [copy(outside, "s1")], always, advertised)
    assert (found.missing, found.wrong, found.unanswered, found.undecided) == (1, 1, 1, 1)
    refused = replace(outside, refused="not-advertised")
    assert judge(types, [inside, refused, early], [copy(inside, "s1")], always, advertised).ok
    other = Stand(10, 20, "somebody else", "", parse("price < 3", QUOTE))
    for elsewhere in (replace(advertised[0], broker="b2"), replace(advertised[0], stands=(other,))):
        assert judge(types, [inside], [copy(inside, "s1")], always, [elsewhere]).wrong == 1


def test_losses_of_a_reduction_that_may_lose_are_told_apart():
    """Of a type with the probabilistic reduction a loss is counted, and is no error; a wrong delivery is one."""
    types = {"quote": replace(QUOTE, reduction="probabilistic")}
    event = publication("e", 30)
    found = judge(types, [event], [], [STANDING])
    assert (found.ok, found.lost, found.missing) == (True, 1, 0)
    assert not judge(types, [event], [copy(event, "s1", "eve")], [STANDING]).ok


def test_stale_deliveries_are_counted_apart():
    """What was routed with an old index by choice is not held to be wrong."""
    event = publication("e", 30, price=9)
    found = judge(TYPES, [event], [copy(event, "s1", stale=True)], [STANDING])
    assert (found.ok, found.stale) == (True, 1)


def test_what_kafka_has_deleted_is_not_missing():
    """Of a destination whose beginning was deleted only what came later is demanded."""
    events = [publication("e", 30), publication("f", 50)]
    found = judge(TYPES, events, [], [STANDING], cut_ms={"d.alice": 40.0})
    assert (found.missing, found.findings[0].id) == (1, "f")


def test_the_same_event_twice_is_one_event():
    """A publisher that repeats an event gets it delivered if one of the two must be; both bytes are right."""
    first, second = publication("e", 5, 6), publication("e", 30, price=2)
    assert judge(TYPES, [first, second], [], [STANDING]).missing == 1
    for chosen in (first, second):
        assert judge(TYPES, [first, second], [copy(chosen, "s1")], [STANDING]).ok


def test_an_imprecise_publication_is_judged_one_by_one():
    """Where an event gives an interval the exact evaluator decides, row by row, beside precise ones."""
    kind = EventType("quote", (Attribute("price", "int", imprecise="possible"), Attribute("symbol", "text")))
    vague = replace(publication("e", 30), value=b'{"price": {"min": 1, "max": 9}, "symbol": "a"}')
    exact = publication("f", 30)
    history = Claim("b1", "quote", "s1", (Stand(10, 20, "alice", "d.alice", parse("symbol = 'a'", kind)),))
    found = judge({"quote": kind}, [vague, exact], [copy(exact, "s1")], [history])
    assert (found.missing, found.findings[0].id) == (1, "e")


# ── several configurations ──────────────────────────────────────────────────────────────────────────────────────────

LOW, HIGH = claim(stand("price < 5", 0, 1)), claim(stand("price > 2", 0, 1))


def test_between_two_configurations_both_must_want_it():
    """What both want must come, what one wants may, what none wants must not; what is in one reading is decided."""
    both = [publication(price, 30, price=price) for price in (1, 3, 9)]
    old, new = publication("old", 30, price=1), publication("new", 30, price=1)
    readings = [Reading(TYPES, [*both, old, None], [LOW]), Reading(TYPES, [*both, None, new], [HIGH])]
    found = judge_by(readings, [])
    assert (found.published, found.expected, found.undecided) == (5, 2, 2)
    assert {finding.id for finding in found.findings} == {"3", "old"}
    right = [copy(event, "s1") for event in (both[1], old)]
    for more in ([], [copy(both[0], "s1")], [copy(both[0], "s1"), copy(both[2], "s1")]):
        assert judge_by(readings, [*right, *more]).ok
    assert judge_by(readings, [*right, copy(new, "s1")]).wrong == 1


@settings(max_examples=60, deadline=None)
@given(worlds(), st.lists(worlds(), min_size=1, max_size=2), st.randoms(use_true_random=False))
def test_readings_are_joined_row_by_row(first, others, rng: random.Random):
    """What may be is what any reading of a row allows, what must be is what all of them demand: against plain loops."""
    events, every = first[1], [first[0], *(claims for claims, _ in others)]
    rows = [{n for n in range(len(every)) if rng.random() < 0.6} or {0} for _ in events]
    readings, may, must = [], set(), set()
    for n, claims in enumerate(every):
        seen = [event if n in row else None for event, row in zip(events, rows, strict=True)]
        readings.append(Reading(TYPES, seen, [one.claim for one in claims]))
    for event, row in zip(events, rows, strict=True):
        wanted = [naive(every[n], [event]) for n in sorted(row)]
        may |= set.union(*(each for each, _ in wanted))
        must |= set.intersection(*(each for _, each in wanted))
    chosen = must | {code for code in sorted(may - must) if rng.random() < 0.5}
    found = judge_by(readings, as_deliveries(chosen, events))
    assert found.ok, found.findings
    assert found.expected == len({code[:3] for code in must})
    for lost in sorted(must)[:1]:
        rest = {code for code in chosen if code[:3] != lost[:3]}
        assert judge_by(readings, as_deliveries(rest, events)).missing == 1
    beyond = {(e.id, c, f"d.{c}", "s0") for e in events for c in ("alice", "bob")} - {(*c[:3], "s0") for c in may}
    for extra in sorted(beyond)[:1]:
        assert judge_by(readings, as_deliveries({*chosen, extra}, events)).wrong == 1


def test_the_same_event_twice_under_two_configurations():
    """Either publication of a name demands what its own configuration wants."""
    first, second = publication("e", 5, price=1), publication("e", 30, price=1)
    readings = [Reading(TYPES, [first, None], [LOW]), Reading(TYPES, [None, second], [HIGH])]
    assert judge_by(readings, []).missing == 1
    assert judge_by(readings, [copy(first, "s1")]).ok


def test_what_only_one_configuration_can_use_need_not_be_answered():
    """Without a dead letter it is unanswered if none of those that it may have met could use it, and somebody must."""
    bad, fine = publication("e", 30, fault="unknown-type"), publication("e", 30, price=9)
    strange = replace(bad, fault="unknown-broker")
    for one, other, unanswered in (
        (bad, fine, 0),
        (bad, bad, 1),
        (bad, None, 1),
        (strange, bad, 0),
        (strange, None, 1),
    ):
        assert judge_by([Reading(TYPES, [one], []), Reading(TYPES, [other], [])], []).unanswered == unanswered


def test_a_publication_is_done_once_one_configuration_has_done_it():
    """Its broker may be gone with the other; while no one has routed it to the end it is pending."""
    done, late = publication("e", 30), publication("e", 30, NEVER)
    assert judge_by([Reading(TYPES, [done], [LOW]), Reading(TYPES, [late], [LOW])], []).pending == 0
    found = judge_by([Reading(TYPES, [late], [LOW]), Reading(TYPES, [late], [LOW])], [])
    assert (found.pending, found.missing) == (1, 0)


def test_a_publication_that_is_another_event_to_each_configuration_demands_nothing():
    """Its source may be what a configuration says of its client: whatever comes of it is believed."""
    one, other = publication("e", 30), replace(publication("e", 30), source=b"else")
    readings = [Reading(TYPES, [one], [LOW]), Reading(TYPES, [other], [LOW])]
    for deliveries in ([], [copy(one, "s1")], [copy(other, "s1")]):
        assert judge_by(readings, deliveries).ok


def test_only_the_first_findings_are_kept():
    """All are counted, the first of each kind are told."""
    events = [publication(i, 30) for i in range(100)]
    found = judge(TYPES, events, [copy(e, "s1", "eve") for e in events], [STANDING])
    assert (found.missing, found.wrong) == (100, 100)
    assert len(found.findings) == 40


def test_nothing_at_all_is_fine():
    """Empty topics are judged without complaint."""
    assert judge(TYPES, [], [], []).ok
    assert judge(TYPES, [publication("e", 1)], [], []).ok


@pytest.mark.parametrize("subscriptions", [1, 60])
def test_the_number_of_evaluations_is_one_per_filter(monkeypatch, subscriptions):
    """Each filter is evaluated once over all publications of its type, however many they are."""
    calls, whole = [], PlainEvents.holding
    monkeypatch.setattr(PlainEvents, "holding", lambda *a: calls.append(len(a[2])) or whole(*a))
    events = [publication(i, 30, price=i % 7) for i in range(500)]
    claims = [claim(stand(f"price < {i}", 10, 20), id=f"s{i}") for i in range(subscriptions)]
    judge(TYPES, events, [], claims)
    assert calls == [500] * subscriptions


def test_the_judge_does_not_share_the_routers_evaluation(monkeypatch):
    """A delivery that the router's own evaluator denies is missed by the judge, whose evaluator is another one."""
    rough = EventType("quote", tuple(Attribute(name, "int", imprecise="possible") for name in "abd"))
    lists = " AND ".join(f"{name} NOT IN ({', '.join(str(n) for n in range(0, 33, 2))})" for name in "abd")
    value = json.dumps({name: {"min": 1, "max": 1} for name in "abd"}).encode()
    sent = Publication(b"test", b"1", "b1", "quote", value, value, 10, 10, True)
    asked = Claim("b1", "quote", "s1", (Stand(0, 1, "alice", "d.alice", parse(lists, rough)),))
    monkeypatch.setattr(evaluate, "holds_of_box", lambda *_: False)
    assert not evaluate.matches(parse(lists, rough), json.loads(value), rough)
    assert judge({"quote": rough}, [sent], [], [asked]).missing == 1
    assert judge({"quote": rough}, [sent], [copy(sent, "s1")], [asked]).ok
