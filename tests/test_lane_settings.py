"""How many lanes a configuration has, and that deployments have them in common. What lanes do to events stands in
`tests/simulation`."""

from __future__ import annotations

import json

import pytest

from state import lanes
from state.changes import changes
from state.config import parse
from state.errors import ConfigError
from state.lanes import UNKNOWN_CORES, cores, delivery_lanes, first_lane, publication_lanes, shared_lanes
from state.topics import destination, inbox

TEXT = '[overlay]\nbrokers = ["b1", "b2"]\nlinks = [["b1", "b2"]]\n[types.t.attributes]\nx = { kind = "int" }\n'


def config_of(settings: str = "", spark: str = ""):
    return parse(f"{TEXT}[settings]\n{settings}\n[spark]\n{spark}\n")


@pytest.mark.parametrize(
    ("master", "spark", "expected"),
    [
        ("local", "", 1),
        ("local[2]", "", 2),
        ("local[64]", "", 6),
        ("local[*]", "", 6),
        ("local[4, 3]", "", 4),
        ("spark://h:7077", "", UNKNOWN_CORES),
        ("spark://h:7077", '"spark.cores.max" = 12', 12),
        ("k8s://h", '"spark.executor.instances" = 3\n"spark.executor.cores" = 2', 6),
        ("k8s://h", '"spark.executor.instances" = 3', UNKNOWN_CORES),
    ],
)
def test_publications_have_as_many_lanes_as_the_job_has_cores(monkeypatch, master, spark, expected):
    """Of the machine, as far as the master uses them; or as the settings of Spark say; links then still have one."""
    monkeypatch.setattr(lanes.os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    config = config_of(f'master = "{master}"', spark)
    assert (cores(config), publication_lanes(config), shared_lanes(config)) == (expected, expected, 1)


def test_what_is_set_counts_for_publications_links_and_shared_topics():
    """And for nothing else: deliveries have as many as are set for them, and inboxes of control events have one."""
    config = config_of('partitions = 7\nmaster = "local[2]"')
    assert (delivery_lanes(config), delivery_lanes(config_of("delivery_partitions = 2"))) == (1, 2)
    wide = config_of("delivery_partitions = 2")
    assert [destination(wide, topic).partitions for topic in (wide.topics.deliver("c"), "sink")] == [2, 1]
    topics = config.topics
    shared = [topics.link("b1", "b2"), topics.group("b1", 0), topics.broadcast("b1"), topics.group("b1", 0, "team")]
    assert [destination(config, topic).partitions for topic in shared] == [7] * 4
    assert inbox(config, "publications").partitions == 7
    others = [destination(config, topic) for topic in (topics.deliver("group"), "sink", topics.receipts)]
    assert [kept.partitions for kept in [*others, inbox(config, "subscriptions")]] == [1] * 4
    for wrong in ("0", "1001", '"many"', "1.5"):
        for name in ("partitions", "delivery_partitions"):
            with pytest.raises(ConfigError, match=rf"settings\.{name}"):
                config_of(f"{name} = {wrong}")


def test_deployments_have_lanes_in_common():
    """A file without has what is agreed, one with another number too; what is agreed without takes it away again."""
    plain, three, five = (config_of(text) for text in ("", "partitions = 3", "partitions = 5"))
    assert "partitions" not in json.loads(plain.shared)["settings"], "files that say nothing are what they were"
    for ours in (plain, three):
        assert ours.adopting(five.shared).settings.partitions == 5
        assert ours.adopting(plain.shared).settings.partitions is None
    assert plain.fingerprint() == three.fingerprint(), "no generation is rebuilt for it at a start"
    assert changes(plain, three).lines == ["~ partitions: not set -> 3"]
    wide = config_of("delivery_partitions = 2")
    assert wide.adopting(plain.shared).settings.delivery_partitions is None
    assert plain.adopting(wide.shared).settings.delivery_partitions == 2
    assert changes(plain, wide).lines == ["~ delivery_partitions: not set -> 2"]


def test_where_the_lanes_of_a_topic_begin_depends_on_its_name_alone():
    """The same in every process and version: a repeat must write where the first attempt did."""
    assert [first_lane(name) % 5 for name in ("hilcast.publications", "hilcast.link.b1.b2", "a")] == [2, 3, 2]
