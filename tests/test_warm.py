"""What is compiled before the first batch: everything that a batch of any format then needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from state.config import parse
from state.space.decode import decode
from state.space.encodings.encoded_batches import two_texts
from state.space.encodings.wire import framed
from state.space.event_type import Attribute, EventType
from state.warm import warm
from tests.space.encoded import Known

ROOT = Path(__file__).parents[1]
CONFIG = """
[overlay]
brokers = ["b1"]
[schemas]
url = "http://127.0.0.1:1"
[types.order]
format = "avro"
[types.order.attributes]
a = { kind = "text" }
n = { kind = "int", path = "b.c" }
"""


def compiled() -> dict[str, int]:
    """By kernel of ours: for how many signatures it is compiled."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("state.")]
    kernels = [thing for module in modules for thing in vars(module).values() if hasattr(thing, "nopython_signatures")]
    return {f"{k.py_func.__module__}.{k.py_func.__qualname__}": len(k.signatures) for k in kernels}


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_no_batch_of_a_format_compiles_anything_after_warming(format):
    """By a schema file or by the registry, texts, categories, times and numbers, points and intervals."""
    warm(parse(CONFIG))
    schema, value = two_texts(format)
    attributes = (
        Attribute("a", "text"),
        Attribute("b", "category", values=("c", "d")),
        Attribute("t", "timestamp", path=("a",)),
        Attribute("n", "int", path=("a",), imprecise="possible"),
    )
    before = compiled()
    own = decode(EventType("t", attributes, format=format, schema=schema), [value, None, b"\xff"])
    indexes = (0,) if format == "protobuf" else None
    named = decode(EventType("t", attributes, format=format), [framed(1, value, indexes)], None, Known({1: schema}))
    assert own.valid.tolist() == [True, False, False]
    assert own.ranks[0].tolist() == named.ranks[0].tolist()
    assert own.ranks[0, 1] == 0
    assert {name: n for name, n in compiled().items() if n != before.get(name)} == {}


def test_a_type_that_is_not_json_is_matched_warm():
    """Events go through matching, too: nothing that the first batch of such a type meets is met for the first time."""
    warm(parse(CONFIG))
    assert compiled()["state.space.json_scan.find_nested"] >= 1
    assert compiled()["state.space.encodings.avro_scan.scan_avro"] >= 1
    assert compiled()["state.space.encodings.protobuf_scan.scan_protobuf"] >= 1


LARGE_BATCH = """
import pyarrow as pa
from state.config import parse
from state.routing.envelope import INPUT
from state.routing.route import route
from state.warm import warm
from tests.simulation.world import World
from tests.test_warm import JSON, compiled
warm(parse(JSON))
world = World(parse(JSON))
for i in range(200):
    filter = f"x BETWEEN {i} AND {i + 9} AND name = 'n{i % 5}'"
    world.send("hilcast.subscriptions", f"b{i % 2 + 1}/t/s{i}", {"client": f"c{i % 7}", "filter": filter})
world.settle()
names = {"ce_specversion": "1.0", "ce_source": "s", "ce_type": "t", "ce_broker": "b1"}
rows = [
    {"topic": "hilcast.publications", "partition": 0, "offset": i, "key": None, "value": value.encode()}
    | {"headers": [{"key": name, "value": said.encode()} for name, said in [*names.items(), ("ce_id", str(i))]]}
    for i, value in enumerate(f'{{"x": {i % 200}, "name": "n{i % 5}"}}' for i in range(500))
]
snapshot = world.deployments[0].snapshot()
before = compiled()
rows_out = sum(out.num_rows for out in route(snapshot, pa.RecordBatch.from_pylist(rows, INPUT)).batches())
assert rows_out > 500, rows_out
more = {name for name, n in compiled().items() if n != before.get(name)}
assert not more, more
"""
JSON = """
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
name = { kind = "text" }
"""


def test_a_large_batch_compiles_nothing_after_warming():
    """Many events of a type in JSON are matched by other kernels than a few: these are warm, too."""
    done = subprocess.run([sys.executable, "-c", LARGE_BATCH], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


BOTH_HALVES = """
import subprocess
import sys
from pathlib import Path
from state.config import parse
from state.warm import warm
from tests.test_warm import CONFIG, compiled
before = compiled()
for half in (0, 1):
    warm(parse(CONFIG), half)
    now = compiled()
    assert now != before, f"half {half} does nothing"
    before = now
warm(parse(CONFIG))
assert compiled() == before, "more than both halves"
"""


def test_both_halves_are_all_of_it():
    """What two processes compile side by side is all that one would compile alone, and neither has nothing to do."""
    done = subprocess.run([sys.executable, "-c", BOTH_HALVES], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
