"""The judge of one slice of routing: what a batch of records may lead to, by the contract alone.

    every record of ours      delivered, or gone to another deployment, or one dead letter, or counted as unmatched
    every copy                key and value of its record byte for byte, its headers in order, ours after them
    every line of the log     as many events, and as many unmatched, as there are
    every figure              as many as there are

Reads records without the router's code; who must get an event is for the ledger.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state.config import Config
from state.messages import Headers, Output, Record, delivery_id, event_digest, read_members

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedDeployment


@dataclass(frozen=True)
class Known:
    """What a record says of itself, read plainly."""

    mine: bool
    source: bytes
    id: bytes
    headers: Headers
    """What its copies begin with."""


@dataclass
class Slices:
    """Judges every slice that a world routes."""

    seen: Counter[str] = field(default_factory=Counter)

    def __call__(
        self,
        deployment: SimulatedDeployment,
        records: Sequence[Record],
        outputs: Sequence[tuple[int | None, Output]],
        figures: Mapping[str, int],
    ) -> None:
        """A slice was routed; not all of it may reach the topics."""
        config, epoch = deployment.config, f"{deployment.generation}.{deployment.batch}"
        copies: dict[int, list[Output]] = defaultdict(list)
        for stamp, output in outputs:
            assert (stamp is None) == (output.topic == config.topics.routed), f"a copy of nothing: {output}"
            if stamp is not None:
                copies[stamp].append(output)
        counted, places = Counter[str](), Counter[tuple[str, int, str]]()
        for stamp, record in enumerate(records):
            said = read(record, config)
            kinds = self._judge(record, said, copies[stamp], config, epoch)
            unmatched = said.mine and not kinds["letter"] + kinds["copy"] + kinds["away"]
            counted.update(routed=said.mine, unmatched=unmatched, dead_letters=kinds["letter"], copies=kinds["copy"])
            counted.update({name: n for name, n in kinds.items() if name.startswith("link:")})
            place = (record.topic, record.partition)
            places.update({(*place, "events"): said.mine, (*place, "unmatched"): unmatched})
        lines = [json.loads(output.value or b"") for stamp, output in outputs if stamp is None]
        self._log(lines, records, places, deployment, epoch)
        other = ("link_wasted:", "distribution:")
        told = {name: n for name, n in figures.items() if n and not name.startswith(other)}
        assert told == {name: n for name, n in counted.items() if n}, f"figures: {told}, not {dict(counted)}"
        self.seen.update({"slices": 1, "unmatched events": counted["unmatched"]})

    def _judge(self, record: Record, said: Known, copies: Sequence[Output], config: Config, epoch: str) -> Counter[str]:
        """Judge all copies of one record: how many there are of each kind."""
        kinds = Counter[str]()
        event = event_digest(said.source, said.id)
        for copy in copies:
            assert said.mine, f"not ours: {record} led to {copy}"
            if copy.topic == config.topics.deadletter:
                kinds["letter"] += 1
                _same(copy, record, record.headers, ("code", "reason", "topic", "partition", "offset"))
                place = tuple(dict(copy.headers)[f"hilcast_{name}"] for name in ("topic", "partition", "offset"))
                assert place == tuple(str(x).encode() for x in record.place), f"dead letter: {place} is {record.place}"
            elif copy.topic.startswith(f"{config.topics.prefix}.link."):
                origin, target = copy.topic.split(".")[-2:]
                kinds[f"link:{origin}>{target}"] += 1
                kinds["away"] += target not in config.deployment.hosts
                _same(copy, record, said.headers, ())
            else:
                kinds["copy"] += 1
                self._delivered(copy, record, said, event, epoch, config)
        # of a shared topic there may be several, where one header has no room for all whom it names
        often = Counter((copy.topic, dict(copy.headers).get("hilcast_client")) for copy in copies)
        shared = {c.topic for c in copies if "hilcast_members" in dict(c.headers)}
        twice = [place for place, n in often.items() if n > 1 and place[0] not in shared]
        assert not twice, f"more than once: {record} led to {twice}"
        assert not kinds["letter"] or len(copies) == 1, f"refused and routed: {record} led to {copies}"
        return kinds

    def _delivered(self, copy: Output, record: Record, said: Known, event: bytes, epoch: str, config: Config) -> None:
        headers = dict(copy.headers)
        if "hilcast_members" in headers:
            self.seen["shared messages"] += 1
            _same(copy, record, said.headers, ("members", "event", "epoch"))
            assert headers["hilcast_event"] == event.hex().encode(), f"event: of {copy}"
            assert read_members(headers["hilcast_members"] or b""), f"for nobody: {copy}"
        else:
            self.seen["deliveries"] += 1
            _same(copy, record, said.headers, ("delivery", "subscriptions", "client", "epoch"))
            client = (headers["hilcast_client"] or b"").decode()
            assert headers["hilcast_delivery"] == delivery_id(event, client).encode(), f"delivery id: of {copy}"
            ids = (headers["hilcast_subscriptions"] or b"").split(b",")
            assert ids == sorted(set(ids)), f"ids: of {copy}"
            assert not copy.topic.startswith(config.topics.deliver("")) or copy.topic == config.topics.deliver(client)
        assert headers["hilcast_epoch"] == epoch.encode(), f"epoch: of {copy}"

    def _log(
        self,
        lines: Sequence[Mapping[str, object]],
        records: Sequence[Record],
        places: Mapping[tuple[str, int, str], int],
        deployment: SimulatedDeployment,
        epoch: str,
    ) -> None:
        offsets: dict[tuple[str, int], list[int]] = defaultdict(list)
        for record in records:
            offsets[record.topic, record.partition].append(record.offset)
        right = [
            {
                "topic": topic, "partition": partition, "first": min(some), "last": max(some), "epoch": epoch,
                "events": places[topic, partition, "events"], "unmatched": places[topic, partition, "unmatched"],
                "deployment": deployment.name,
            }
            for (topic, partition), some in offsets.items()
        ]  # fmt: skip
        ordered, told = (sorted(some, key=lambda line: (line["topic"], line["partition"])) for some in (right, lines))
        assert told == ordered, f"routing log: {told}, not {ordered}"


def _same(copy: Output, record: Record, headers: Headers, ours: tuple[str, ...]) -> None:
    assert (copy.key, copy.value) == (record.key, record.value), f"altered: {record} became {copy}"
    assert copy.headers[: len(headers)] == headers, f"headers: {record} became {copy}"
    added = tuple(name for name, _ in copy.headers[len(headers) :])
    assert added == tuple(f"hilcast_{name}" for name in ours), f"headers: {added} of {copy}"


def read(record: Record, config: Config) -> Known:
    """Read a record as the contract says, without the router's code."""
    kept = tuple((name, value) for name, value in record.headers if not name.startswith("hilcast_"))
    said = {name.removeprefix("ce_"): value for name, value in record.headers if name.startswith("ce_")}
    kind = [value or b"" for name, value in record.headers if name.lower() == "content-type"]
    if kind and kind[-1].startswith(b"application/cloudevents"):
        said = _structured(record.value)
    source = next((source for source in config.sources if source.topic == record.topic), None)
    if source is not None:
        gained = {
            "specversion": b"1.0",
            "id": f"{record.partition}/{record.offset}".encode(),
            "source": f"kafka:{source.topic}".encode(),
            "type": source.type.encode(),
            "broker": source.broker.encode(),
        }
        kept += tuple((f"ce_{name}", value) for name, value in gained.items() if not said.get(name))
        said = gained | {name: value for name, value in said.items() if value}
    client = record.topic.removeprefix(f"{config.topics.publications}.")
    if config.security.own and client != record.topic and not kind and not said.get("source"):
        kept += (("ce_source", client.encode()),)
        said["source"] = client.encode()
    broker = (said.get("broker") or b"").decode()
    if record.topic.startswith(f"{config.topics.prefix}.link."):
        broker = record.topic.split(".")[-1]
    hosts, brokers = config.deployment.hosts, config.overlay.brokers
    mine = broker in hosts or (broker not in brokers and brokers[0] in hosts)
    return Known(mine, said.get("source") or b"", said.get("id") or b"", kept)


def _structured(value: bytes | None) -> dict[str, bytes | None]:
    try:
        event = json.loads(value or b"")
    except ValueError:
        return {}
    given = event.items() if isinstance(event, dict) else ()
    return {name: text.encode() for name, text in given if isinstance(text, str)}
