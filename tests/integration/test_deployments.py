"""Two deployments on one Kafka make one overlay; jobs outlive the absence of Redis and of Kafka."""

from __future__ import annotations

import time

import pytest
import redis

from infra.local.services import LocalServices
from producers import cli
from tests.integration.harness import RunningJob, Wire
from tests.integration.test_overlay import Drill

LANES = "[settings]\npartitions = {0}\ndelivery_partitions = {0}\n"
HOSTS = {"east": ["b1", "b2", "b7"], "west": ["b3", "b4", "b5", "b6"]}


class Both(Drill):
    """The drill of one deployment, hosted by two."""

    def __init__(self, services, folder, prefix, seed):
        super().__init__(services, folder, prefix, seed)
        self.jobs = []
        for name, hosts in HOSTS.items():
            text = self.path.read_text().replace('name = "main"', f'name = "{name}"\nhosts = {hosts!r}')
            path = folder / f"{name}.toml"
            path.write_text(text.replace('checkpoint = "checkpoint"', f'checkpoint = "{name}"') + LANES.format(2))
            self.jobs.append(RunningJob(path))

    def grow(self, lanes):
        """Have the running deployments go on in more lanes."""
        path = self.jobs[0].path
        path.write_text(path.read_text().replace(LANES.format(2), LANES.format(lanes)))
        assert cli.main(["apply", "--timeout", "240", "--config", str(path)]) == 0
        self.wire = Wire(self.services.kafka, self.prefix)  # a producer looks for new partitions every few minutes

    def check_lanes(self, lanes, first):
        """What was published from `first` on stands, between deployments too, where its input says, and in order."""
        entered = {r.header("ce_id"): (r.partition, r.offset) for r in self.wire.read("publications")}
        assert {partition for id, (partition, _) in entered.items() if int(id) >= first} == set(range(lanes))
        for link in self.wire.under("link.b2", "link.b3"):
            last, lane_of = {}, {}
            near = next(hosts for hosts in HOSTS.values() if link.split(".")[-2] in hosts)
            for record in self.wire.read(link):  # what came by another link goes on in the lanes of that one
                if int(id := record.header("ce_id")) >= first and record.header("ce_broker") in near:
                    partition, offset = entered[id]
                    assert lane_of.setdefault(partition, record.partition) == record.partition, link
                    assert last.setdefault(partition, -1) < offset, f"out of order: {link}"
                    last[partition] = offset
            if link.endswith(("b2.b3", "b2.b4", "b3.b2")):
                assert set(lane_of.values()) == set(range(lanes)), f"not all lanes are used: {link}"
        delivered = [r for r in self.wire.read(*self.wire.under("deliver")) if int(r.header("ce_id")) >= first]
        assert {r.partition for r in delivered} == set(range(lanes)), "clients' topics have lanes, too"
        lines = [r.json for r in self.wire.read("routed")]
        routed = {line["partition"] for line in lines if line["topic"] == f"{self.prefix}.link.b2.b3"}
        assert routed == set(range(lanes)), "each lane is routed by a task of its own"

    def compare_clients(self):
        """Copies of other deployments share the delivery id: united, they are what the oracle expects."""
        self.wire.routed(self.sent, timeout_s=240.0)
        deadline = time.monotonic() + 120.0
        while True:
            got, ids = {}, {}
            for record in self.wire.read(*self.wire.under("deliver")):
                place = (record.header("hilcast_client"), record.header("ce_id"))
                got.setdefault(place, set()).update(record.header("hilcast_subscriptions").split(","))
                assert ids.setdefault(place, record.header("hilcast_delivery")) == record.header("hilcast_delivery")
            wrong = {place: names for place, names in got.items() if not names <= self.expected.get(place, set())}
            assert not wrong, f"{len(wrong)} wrong: {list(wrong.items())[:3]}"
            if got == dict(self.expected):
                return
            # the routing log speaks of the entry; what crossed to the other deployment may still be on its way
            missing = {k: v - got.get(k, set()) for k, v in self.expected.items() if got.get(k) != v}
            assert time.monotonic() < deadline, f"{len(missing)} missing: {list(missing.items())[:3]}"
            time.sleep(0.5)


@pytest.mark.services
def test_two_deployments_make_one_overlay_that_outlives_its_services(tmp_path, unique):
    """Nothing is missing or wrong across two deployments, in two lanes and then in three; Redis restarts from an old
    dump, Kafka is away for 30 s.
    """
    with LocalServices.on_free_ports(tmp_path / "services") as services:
        drill = Both(services, tmp_path, unique, seed=5)
        try:
            for job in drill.jobs:
                job.start()
            drill.change(120, withdraw=0.1)
            drill.jobs[0].wait(240.0)
            drill.publish(200)
            drill.compare_clients()
            drill.check_lanes(2, first=0)

            drill.grow(3)
            first = drill.sent
            drill.publish(200)
            drill.compare_clients()
            drill.check_lanes(3, first)

            held = redis.Redis.from_url(services.redis)
            held.save()
            drill.change(40)
            drill.jobs[0].wait(240.0)
            services._redis.stop()
            drill.publish(60)
            time.sleep(3.0)
            services._redis.start()
            assert held.dbsize() > 0, "it came back with the index of before the changes"
            drill.compare_clients()

            services._kafka.stop()
            time.sleep(30.0)
            services._kafka.start()
            drill.change(30)
            drill.jobs[0].wait(240.0)
            drill.publish(100)
            drill.compare_clients()
        finally:
            for job in drill.jobs:
                job.end()
