"""Room for both queries: what Spark is started with, and how much of it routing takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streaming import route
from streaming.settings import roomy, routing_tasks


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
