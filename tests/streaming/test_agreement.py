"""What a deployment goes by when it starts: its file, or what was agreed."""

from __future__ import annotations

import json

from msgspec import Raw

from state.config import parse
from state.control.agreed import Agreed, Claim
from streaming.agreement import file_hash, merged, proposal

TEXT = """
[deployment]
hosts = ["{host}"]
[overlay]
brokers = ["b1", "b2"]
links = [["b1", "b2"]]
[types.t.attributes]
x = {{ kind = "int" }}
"""
SOURCE = """
[[sources]]
pattern = "{name}.*"
{broker}
type = "t"
"""


def sources(shared):
    return [source["pattern"] for source in json.loads(shared).get("sources", [])]


def test_sources_whose_records_name_their_broker_are_everybodys():
    """One who joins does not take them away; one whose file has changed does. Those of a broker are its host's."""
    first = parse(
        TEXT.format(host="b1")
        + SOURCE.format(name="fixed", broker='broker = "b1"')
        + SOURCE.format(name="named", broker='broker_header = "x"')
    )
    second = parse(TEXT.format(host="b2") + SOURCE.format(name="own", broker='broker = "b2"'))
    assert sources(merged(second, first.shared, joining=True)) == ["fixed.*", "named.*", "own.*"]
    assert sources(merged(second, first.shared, joining=False)) == ["fixed.*", "own.*"]


def test_who_starts_again_does_not_propose_another_order():
    """What both have agreed on stays, whichever of them starts."""
    files = [
        parse(TEXT.format(host=host) + SOURCE.format(name=f"of-{host}", broker=f'broker = "{host}"'))
        for host in ("b1", "b2")
    ]
    agreed = Agreed(2, Raw(merged(files[1], files[0].shared, joining=True)))
    for file in files:
        config, proposed = proposal(file, agreed, Claim(1, configuration=2, file=file_hash(file)))
        assert proposed is None
        assert [pattern.pattern for pattern in config.patterns] == ["of-b1.*", "of-b2.*"]
