"""Room for both queries: what Spark is started with, and how much of it routing takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from state.config import parse
from streaming import route
from streaming.dying import DRIVER_VARIABLE
from streaming.host_index import FOLDER_VARIABLE
from streaming.settings import WARM_VARIABLE, roomy, routing_tasks, spark_settings


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_routing_leaves_a_place_for_control(threads):
    """A local master of N has N places for routing and one more; a cluster of N cores has N - 1."""
    places = int(roomy(f"local[{threads}]").removeprefix("local[").removesuffix("]"))
    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=places))
    assert routing_tasks(spark) == threads < places


def test_the_route_query_is_read_by_so_many_tasks_at_most(monkeypatch):
    """However many partitions its input has: route tasks wait for control, which must be able to run."""
    asked = []

    class Frame:
        def coalesce(self, tasks):
            asked.append(tasks)
            raise StopIteration

    monkeypatch.setattr(route, "records", lambda *given, **more: Frame())
    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=3))
    with pytest.raises(StopIteration):
        route.start(spark, SimpleNamespace(config=None), "{}", "nowhere")
    assert asked == [2]


@pytest.mark.parametrize(
    ("master", "given", "class_path", "sent"),
    [
        ("local[2]", {}, "/a.jar:/b.jar", None),
        ("spark://host:7077", {}, "/a.jar:/b.jar", "/a.jar,/b.jar"),
        ("local[2]", {"spark.driver.extraClassPath": "/c.jar"}, "/c.jar", "/a.jar,/b.jar"),
    ],
)
def test_spark_finds_the_connector(monkeypatch, master, given, class_path, sent):
    """In the class path of the driver, where it is archived; executors, and whoever has a class path, are sent it."""
    monkeypatch.setenv("HILCAST_SPARK_JARS", "/a.jar,/b.jar")
    for variable in (WARM_VARIABLE, DRIVER_VARIABLE, FOLDER_VARIABLE):
        monkeypatch.setenv(variable, "")  # which the settings write, for this process too
    config = parse('[overlay]\nbrokers = ["b1"]\nlinks = []\n[types.t.attributes]\na = { kind = "int" }\n')
    settings = spark_settings(replace(config, spark=given), master)
    assert settings["spark.driver.extraClassPath"] == class_path
    assert settings.get("spark.jars") == sent
