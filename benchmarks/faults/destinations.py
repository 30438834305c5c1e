"""Destinations that were fit when they were accepted and are not any more, and records that a worker dies of."""

from __future__ import annotations

import itertools
import time

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.faults.inputs import MALLORY, publish, subscribe, type_of
from benchmarks.faults.kind import Fault, known
from benchmarks.faults.scene import Scene
from benchmarks.faults.world import DEADLY

SAID = "nothing can be delivered to "
FOUND_S = 60.0
AGAIN_S = 1.0


class SinkUnfit(Fault):
    """A sink that is in use gets a setting under which it takes no delivery; later it is as it was."""

    expects = "what is for it becomes dead letters, nobody else waits; afterwards it is delivered to again"

    def __init__(self, name: str, setting: str, value: str) -> None:
        self.name, self.setting, self.value = f"sink-{name}-later", setting, value

    def _set(self, scene: Scene, operation: AlterConfigOpType) -> None:
        change = ConfigEntry(self.setting, self.value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, str(scene.notes["sink"]), incremental_configs=[change])
        for future in scene.admin.incremental_alter_configs([resource]).values():
            future.result(30.0)

    def prepare(self, scene: Scene) -> None:
        scene.notes["sink"] = sink = f"{scene.deployment.prefix}-later{scene.rng.randrange(10**6)}"
        subscribe(scene, sink=sink)
        scene.in_force()
        publish(scene, {"symbol": "mallory", "price": 1})
        scene.until(lambda: scene.holds(sink, 1), "a delivery to the sink")

    def strike(self, scene: Scene) -> None:
        self._set(scene, AlterConfigOpType.SET)
        publish(scene, {"symbol": "mallory", "price": 1}, key=None)
        said = f"{SAID}{scene.notes['sink']}"
        scene.until(lambda: said in scene.job.said(), "the sink to be closed")
        known = scene.letters("sink-refused")

        def refused() -> bool:
            # again: a task that had begun when it was closed delivers, small as it is
            publish(scene, {"symbol": "mallory", "price": 1}, key=None)
            time.sleep(AGAIN_S)
            return scene.letters("sink-refused") > known

        scene.until(refused, "a dead letter")

    def heal(self, scene: Scene) -> None:
        old = ConfigEntry(self.setting, "delete" if self.setting == "cleanup.policy" else "1114124")
        self.value, was = str(old.value), self.value
        self._set(scene, AlterConfigOpType.SET)
        self.value = was
        sink = str(scene.notes["sink"])
        again = f"{sink} is delivered to again"
        scene.until(lambda: again in scene.job.said(), "the sink to be opened")
        time.sleep(2.0)  # a task that has begun goes by what was then
        scene.notes["held"] = next(n for n in itertools.count() if not scene.holds(sink, n + 1))
        publish(scene, {"symbol": "mallory", "price": 1})

    def after(self, scene: Scene) -> list[str]:
        sink, deadline = str(scene.notes["sink"]), time.monotonic() + FOUND_S
        more = int(str(scene.notes["held"])) + 1
        while not scene.holds(sink, more) and time.monotonic() < deadline:
            time.sleep(0.5)
        return [] if scene.holds(sink, more) else ["the sink is fit again, and nothing is delivered to it"]


class DeadlyRecord(Fault):
    """A record that kills every worker that handles it, as a fault in compiled code would."""

    expects = "narrowed to that record, which becomes a dead letter; everything else goes on"
    bound_s = 180.0
    loops = 12
    ends = True

    def __init__(self, query: str) -> None:
        self.query, self.name = query, f"deadly-{'publication' if query == 'route' else 'subscription'}"

    def strike(self, scene: Scene) -> None:
        told, letters = scene.job.log.stat().st_size, scene.letters("internal")
        if self.query == "route":
            publish(scene, {"symbol": DEADLY, "price": 1})
        else:
            key = f"b1/{type_of(scene)}/deadly{scene.rng.randrange(10**6)}"
            scene.load.send("subscriptions", key, {"client": "mallory", "filter": MALLORY, "note": DEADLY})
        said = f"QUARANTINE: the {self.query} query"
        scene.until(lambda: said in scene.job.said(told), "the record to be quarantined")
        scene.until(lambda: scene.letters("internal") > letters, "its dead letter")

    def heal(self, scene: Scene) -> None:
        """Nothing: it goes on by itself, and so it does when it is started anew."""
        scene.routing_since(time.time(), self)
        scene.job.end()
        scene.restart()


known(
    SinkUnfit("compacted", "cleanup.policy", "compact"),
    SinkUnfit("narrow", "max.message.bytes", "1000"),
    DeadlyRecord("route"),
    DeadlyRecord("control"),
)
