"""Reading a registry whose records are signed: what is forged, what is old, and what another key has signed."""

from __future__ import annotations

import pytest

from infra.signing_keys import SigningKeys
from state.config import parse
from state.control.agreed import configuration_record
from state.control.facts import Fact, encode_fact, ending
from state.messages import Output
from state.signing import Keyring, signed
from streaming.registry import RegistryReader
from tests.producers.memory import MemoryKafka

OLD, NEW = "0a" * 16, "0b" * 16
TOPIC = "hilcast.registry"
NAME = ("subscription", "b1", "t", "s1")
CONFIG = """
[deployment]
hosts = ["b1"]
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = { kind = "int" }
[signing]
key_file = "key"
previous_file = "previous"
"""


def fact(offset, live=True):
    return Fact(
        version=offset, owner="c", filter='"x < 5"', ttl_ms=None, expires_ms=None, sink=None, content=b"", topic="i",
        partition=0, offset=offset, timestamp_ms=0, live=live, deployment="main", generation=1,
    )  # fmt: skip


class Bench:
    """A registry in memory, its reader, and the files of keys."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "key").write_text(OLD)
        self.config = parse(CONFIG, folder)
        self.kafka = MemoryKafka(most=100)
        self.kafka.make(TOPIC)
        self.reader = RegistryReader(self.config, self.kafka, SigningKeys(self.config))

    def write(self, key, value, headers=(), by=OLD):
        output = Output(TOPIC, "/".join(key).encode() if isinstance(key, tuple) else key, value, headers)
        self.kafka.append(output if by is None else signed(output, Keyring((bytes.fromhex(by),))))


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def test_what_is_forged_is_passed_over(bench):
    """Neither a fact, nor its end, nor a configuration without our signature changes anything; each is counted."""
    bench.write(NAME, encode_fact(fact(1)))
    bench.write(NAME, encode_fact(fact(2)), by=None)
    bench.write(NAME, encode_fact(fact(3)), by=NEW)
    bench.write(NAME, None, by=None)
    bench.write(*configuration_record(7, b"{}"), by=None)
    assert bench.reader.catch_up() == [NAME]
    assert bench.reader.facts[NAME].offset == 1
    assert (bench.reader.forged, bench.reader.agreements.agreed) == (4, None)


@pytest.mark.parametrize("junk", [b"{", b"[]", b'{"version": 1}', b'"\xe1"', b"[" * 100_000, encode_fact(fact(2))[:-9]])
def test_what_is_no_fact_is_passed_over(bench, junk):
    """A record of the registry that cannot be read stops nobody; what was known stays."""
    bench.write(NAME, encode_fact(fact(1)))
    bench.write(NAME, junk)
    bench.write(b"configuration", junk)
    assert bench.reader.catch_up() == [NAME]
    assert bench.reader.facts[NAME].offset == 1
    assert bench.reader.agreements.agreed is None


def test_an_end_that_is_said_again_ends_nothing(bench):
    """The end of an earlier fact does not end a later one, and the later one is written again behind it."""
    end = ending(fact(1, live=False))
    bench.write(NAME, encode_fact(fact(1, live=False)))
    bench.write(NAME, None, end)
    bench.reader.catch_up()
    assert NAME not in bench.reader.facts
    bench.write(NAME, encode_fact(fact(5)))
    bench.write(NAME, None, end)
    bench.reader.catch_up()
    assert bench.reader.facts[NAME].offset == 5
    assert bench.reader.overwritten() == [("/".join(NAME).encode(), encode_fact(fact(5)))]


def test_an_older_configuration_that_is_said_again_is_not_taken(bench):
    """What was agreed on stays, and is written again behind the older one, which compaction would keep."""
    bench.write(*configuration_record(2, b'{"a":2}'))
    bench.write(*configuration_record(1, b'{"a":1}'))
    bench.reader.catch_up()
    assert bench.reader.agreements.version == 2
    assert bench.reader.overwritten() == [configuration_record(2, b'{"a":2}')]
    assert bench.reader.overwritten() == []


def test_another_key_has_everything_of_ours_signed_anew(bench):
    """Home keys of hosted brokers write their facts themselves; what no home writes is given; nothing twice."""
    gone, theirs = ("subscription", "b9", "t", "s1"), ("subscription", "b2", "t", "s1")
    for name in (NAME, gone, theirs):
        bench.write(name, encode_fact(fact(1)))
    bench.write(b"generation/main", b'{"generation": 3}')
    bench.write(b"generation/other", b'{"generation": 4}')
    bench.reader.catch_up()
    assert bench.reader.aged(bench.config) == ([], [])
    (bench.folder / "previous").write_text(f"{NEW}\n{OLD}\n")
    assert bench.reader.aged(bench.config) == ([], []), "believed is not used"
    (bench.folder / "key").write_text(NEW)
    homes, records = bench.reader.aged(bench.config)
    assert [(key.broker, key.type, key.is_home) for key in homes] == [("b1", "t", True)]
    assert sorted(key for key, _ in records) == [b"generation/main", "/".join(gone).encode()]
    assert bench.reader.aged(bench.config) == ([], [])


def test_a_job_that_begins_finds_what_an_older_key_signed(bench):
    """Also what was signed before this life began is found."""
    bench.write(NAME, encode_fact(fact(1)))
    (bench.folder / "previous").write_text(OLD)
    (bench.folder / "key").write_text(NEW)
    later = RegistryReader(bench.config, bench.kafka, SigningKeys(bench.config))
    later.catch_up()
    assert len(later.aged(bench.config).homes) == 1
    assert later.aged(bench.config).homes == []
