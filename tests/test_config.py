"""The configuration: defaults, every fault with its place, all at once, and no secret in anything printed."""

from __future__ import annotations

import re
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.config import CLUSTERINGS, Config, Distribution, Overlay, Settings, Topics, load, parse, redacted
from state.distribution import clustering
from state.errors import ConfigError
from state.overlay import faults
from state.space.event_type import Attribute, EventType, Pruning
from state.space.grid import Grid

ROOT = Path(__file__).parents[1]

SMALL = """
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types."stock.quote".attributes]
price = { kind = "float", min = 0, max = 1000 }
"""


def _faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.faults


def _with(section: str) -> str:
    """The small configuration and one more section, which may open a table anew."""
    return SMALL + section


# --- what is accepted ---------------------------------------------------------------------------------------


def test_the_example_at_the_root_is_sound() -> None:
    """`hilcast.toml` loads, has five brokers in a tree, and its types show every kind of attribute."""
    config = load(ROOT / "hilcast.toml")
    config.overlay.check()
    assert len(config.overlay.brokers) == 5
    kinds = {attribute.kind for attribute in config.types["stock.quote"].attributes}
    assert kinds == {"int", "float", "boolean", "category", "timestamp", "text"}
    assert len(config.types) == 2


def test_the_contracts_own_example() -> None:
    """A configuration with everything that docs/operations.md names is read as it says."""
    config = parse("""
[deployment]
name = "main"
prefix = "hilcast"
kafka = "127.0.0.1:9092"
redis = "redis://127.0.0.1:6379/0"
checkpoint = "var/checkpoint"
hosts = ["b1", "b2", "b3"]
stale = "route"
[overlay]
brokers = ["b1", "b2", "b3"]
links = [["b1", "b2"], ["b2", "b3"]]
[types."stock.quote"]
reduction = "mics"
advertisements = false
matcher = "s-tree"
[types."stock.quote".parameters]
cap = 64
[types."stock.quote".pruning]
subscriptions = 900
[types."stock.quote".matcher_parameters]
skew = 0.25
[types."stock.quote".attributes]
symbol = { kind = "text" }
price  = { kind = "float", min = 0, max = 1000 }
volume = { kind = "int", min = 0, max = 1000000 }
side   = { kind = "category", values = ["buy", "sell"] }
at     = { kind = "timestamp" }
halted = { kind = "boolean" }
[[sources]]
topic = "legacy.quotes"
broker = "b2"
type = "stock.quote"
""")
    quote = config.types["stock.quote"]
    assert list(quote.dimension) == ["symbol", "price", "volume", "side", "at", "halted"]
    assert quote.attribute("price").min == 0.0
    assert isinstance(quote.attribute("price").min, float)
    assert quote.attribute("side").values == ("buy", "sell")
    assert (quote.reduction, quote.parameters, quote.advertisements) == ("mics", {"cap": 64}, False)
    assert quote.pruning == Pruning(None, 900)
    assert (quote.matcher, quote.matcher_parameters) == ("s-tree", {"skew": 0.25})
    assert (quote.cubes, quote.index, quote.bits) == (16, (), None)
    assert config.deployment.stale == "route"
    (source,) = config.sources
    assert (source.topic, source.broker, source.type) == ("legacy.quotes", "b2", "stock.quote")


def test_defaults() -> None:
    """A configuration of brokers and types alone is complete; all brokers are hosted."""
    config = parse(SMALL)
    deployment = config.deployment
    assert (deployment.name, deployment.prefix, deployment.stale) == ("main", "hilcast", "wait")
    assert deployment.hosts == ("b1", "b2", "b3")
    assert config.settings == Settings()
    assert config.sources == ()
    assert config.kafka == config.redis == config.spark == {}
    assert config.types["stock.quote"].reduction == "covering"


def test_one_broker_needs_no_links() -> None:
    """The smallest overlay is one broker, of diameter 0."""
    config = parse('[overlay]\nbrokers = ["b"]\n[types.t.attributes]\na = { kind = "int" }')
    assert config.overlay.diameter() == 0
    assert config.overlay.neighbours("b") == ()


def test_checkpoints_are_relative_to_the_file(tmp_path: Path) -> None:
    """A relative path belongs to the file's directory, an absolute one and a URL stay."""
    for given_path, expected in (
        ("var/c", str(tmp_path / "var/c")),
        ("/abs/c", "/abs/c"),
        ("s3a://bucket/c", "s3a://bucket/c"),
    ):
        file = tmp_path / "hilcast.toml"
        file.write_text(_with(f'[deployment]\ncheckpoint = "{given_path}"'))
        assert load(file).deployment.checkpoint == expected


def test_settings_of_other_software_pass_through() -> None:
    """`[kafka]`, quoted or not, and `kafka.*` in `[deployment]` are one; values become text, Redis keeps kinds."""
    config = parse(
        _with("""
[deployment]
"kafka.security.protocol" = "SASL_SSL"
"redis.ssl_ca_certs" = "ca.pem"
[kafka]
"sasl.mechanism" = "PLAIN"
sasl.username = "me"
"enable.ssl.certificate.verification" = false
[redis]
socket_timeout = 2.5
[spark]
spark.sql.shuffle.partitions = 4
"spark.ui.enabled" = true
""")
    )
    assert config.kafka == {
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "enable.ssl.certificate.verification": "false",
        "security.protocol": "SASL_SSL",
    }
    assert config.redis == {"socket_timeout": 2.5, "ssl_ca_certs": "ca.pem"}
    assert config.spark == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "true"}


def test_router_tunables_and_groups() -> None:
    """`[settings]` and `[distribution.BROKER]` are read into their own small types."""
    config = parse(
        _with('[settings]\ntrigger_ms = 50\nmaster = "local[2]"\n[distribution.b2]\ngroups = 8\nthreshold = 1')
    )
    assert config.settings == Settings(trigger_ms=50, master="local[2]")
    assert config.distribution == {"b2": Distribution(groups=8, threshold=1.0)}
    assert set(CLUSTERINGS) == set(clustering.CLUSTERINGS)
    assert parse(_with('[distribution.b2]\ngroups = 1\nthreshold = "fit"')).distribution["b2"].threshold == "fit"


def test_times_in_the_grid_may_be_text_or_toml() -> None:
    """A bound of a timestamp is one however it is written, and kept as RFC 3339 text."""
    bounds = [
        "min = 2020-01-01T00:00:00Z, max = 2030-01-01T00:00:00.5+01:00",
        'min = "2020-01-01T01:00:00+01:00", max = "2029-12-31T23:00:00.500000Z"',
    ]
    types = [
        parse(f'[overlay]\nbrokers=["b"]\n[types.t.attributes]\nat = {{ kind = "timestamp", {b} }}') for b in bounds
    ]
    (first,), (second,) = (config.types["t"].attributes for config in types)
    assert first == second
    assert (first.min, first.max) == ("2020-01-01T00:00:00Z", "2029-12-31T23:00:00.500000Z")
    assert types[0].fingerprint() == types[1].fingerprint()


# --- what is refused ----------------------------------------------------------------------------------------

OVERLAY = '[overlay]\nbrokers = ["b"]\n'
TYPES = '[types.t.attributes]\na = { kind = "int" }\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (TYPES, "overlay.brokers: missing"),
        (OVERLAY, "types: missing"),
        (OVERLAY + "[types]", "types: must hold at least one event type"),
        ("overlay = 3\n" + TYPES, "overlay: must be a table, not 3"),
        ("[overlay]\nbrokers = []\n" + TYPES, "overlay.brokers: must name at least one broker"),
        ('[overlay]\nbrokers = "b"\n' + TYPES, "overlay.brokers: must be a list, not 'b'"),
        ('[overlay]\nbrokers = ["b", "b"]\n' + TYPES, "overlay.brokers: item 2: 'b' is given twice"),
        (OVERLAY + TYPES + "[overlays]", "overlays: unknown key; did you mean 'overlay'?"),
        (OVERLAY + '[types."a b".attributes]\na={kind="int"}', 'types."a b": the name of a type must match'),
        (OVERLAY + "[types.t]", "types.t.attributes: missing"),
        (OVERLAY + "[types.t.attributes]", "types.t.attributes: must hold at least one attribute"),
        (OVERLAY + '[types.t.attributes]\n"" = {kind="int"}', 'types.t.attributes."": an attribute needs a name'),
        (OVERLAY + TYPES + "[settings]\ntrigger = 1", "settings.trigger: unknown key; did you mean 'trigger_ms'?"),
        (
            OVERLAY + TYPES + "[settings]\nhome_shards = 0",
            "settings.home_shards: must be an integer from 1 to 4096, not 0",
        ),
        (
            OVERLAY + TYPES + "[settings]\nhome_shards = true",
            "settings.home_shards: must be an integer from 1 to 4096, not true",
        ),
        (OVERLAY + TYPES + "[settings]\nmaster = 4", "settings.master: must be text, not 4"),
        (OVERLAY + TYPES + "[distribution.x]\ngroups=1\nthreshold=0", "distribution.x: is no broker of the overlay"),
        (OVERLAY + TYPES + "[distribution.b]\nthreshold=1", "distribution.b.groups: missing"),
        (
            OVERLAY + TYPES + "[distribution.b]\ngroups=1\nthreshold=1.5",
            "distribution.b.threshold: must be a number from 0 to 1, not 1.5",
        ),
        (
            OVERLAY + TYPES + '[distribution.b]\ngroups=1\nthreshold="best"',
            "distribution.b.threshold: must be a number from 0 to 1, or \"fit\", not 'best'",
        ),
        (
            OVERLAY + TYPES + '[kafka]\n"bootstrap.servers"="x"',
            'kafka."bootstrap.servers": set deployment.kafka instead',
        ),
        (OVERLAY + TYPES + '[kafka]\n"ssl.x"=[1]', 'kafka."ssl.x": must be text, a number, true or false'),
        (OVERLAY + TYPES + '[kafka]\n"a.b"=1\na.b=2', 'kafka."a.b": is given twice'),
        (OVERLAY + TYPES + "[redis]\nhost='h'", "redis.host: set deployment.redis instead"),
        ("overlay = [", "not TOML: "),
    ],
)
def test_a_fault_and_its_place(text: str, fault: str) -> None:
    """Each fault by itself is the only one reported, at the place where the file has it."""
    (found,) = _faults(text)
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('name = "a.b"', "deployment.name: must match [A-Za-z0-9_-]{1,64}, not 'a.b'"),
        ('prefix = "a/b"', "deployment.prefix: must match [A-Za-z0-9_.-]{1,64}, not 'a/b'"),
        ('hosts = ["b9"]', "deployment.hosts: 'b9' is no broker of the overlay"),
        ("hosts = []", "deployment.hosts: must name at least one broker"),
        ('stale = "yes"', "deployment.stale: must be one of wait, route, not 'yes'"),
        ('stale = ["wait"]', "deployment.stale: must be one of wait, route, not ['wait']"),
        ('kafka = "localhost"', "deployment.kafka: must be HOST:PORT, several with commas between"),
        ('kafka = "h:70000"', "deployment.kafka: must be HOST:PORT, several with commas between"),
        ('kafka = "h:1,"', "deployment.kafka: must be HOST:PORT, several with commas between"),
        ('redis = "127.0.0.1:6379"', "deployment.redis: must be a URL: "),
        ('redis = "http://h"', "deployment.redis: must be a URL: "),
        ('redis = "redis://h:99999999"', "deployment.redis: must be a URL: "),
        ('checkpoint = ""', "deployment.checkpoint: must name a directory"),
        ('"kafka.group.id" = "x"', 'deployment."kafka.group.id": is set by hilcast'),
        ("host = []", "deployment.host: unknown key; did you mean 'hosts'?"),
    ],
)
def test_faults_of_the_deployment(line: str, fault: str) -> None:
    """Addresses, names and choices of `[deployment]` are checked before anything is started."""
    (found,) = _faults(_with(f"[deployment]\n{line}"))
    assert found.startswith(fault)


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "a:1,b.example.org:65535", "[::1]:9092", "a:1, b:2"])
def test_kafka_addresses(address: str) -> None:
    """Several brokers, names, IPv4 and IPv6 are addresses."""
    assert parse(_with(f'[deployment]\nkafka = "{address}"')).deployment.kafka == address


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:1/2", "unix:///run/redis.sock", "redis://[::1]:6379/0"])
def test_redis_addresses(url: str) -> None:
    """With TLS, with a user, over a socket: what the Redis client takes."""
    assert parse(_with(f'[deployment]\nredis = "{url}"')).deployment.redis == url


@pytest.mark.parametrize(
    ("attribute", "faults"),
    [
        ("{}", ["a.kind: missing"]),
        ("3", ["a: must be a table, not 3"]),
        (
            '{ kind = "decimal" }',
            ["a.kind: must be one of int, float, boolean, category, timestamp, text, not 'decimal'"],
        ),
        ('{ kind = "int", min = 3.5 }', ["a.min: must be an integer within +-9223372036854775807, not 3.5"]),
        (
            '{ kind = "int", max = 9223372036854775808 }',
            ["a.max: must be an integer within +-9223372036854775807, not 9223372036854775808"],
        ),
        ('{ kind = "int", min = true }', ["a.min: must be an integer within +-9223372036854775807, not true"]),
        ('{ kind = "int", min = 3, max = 3.0 }', ["a.max: must be greater than min: 3 .. 3"]),
        (
            '{ kind = "float", min = nan, max = inf }',
            ["a.min: must be a finite number, not nan", "a.max: must be a finite number, not inf"],
        ),
        ('{ kind = "float", min = 2, max = 1 }', ["a.max: must be greater than min: 2.0 .. 1.0"]),
        (
            '{ kind = "timestamp", min = 2020-01-01T00:00:00 }',
            ["a.min: must be an RFC 3339 time with an offset, not 2020-01-01T00:00:00"],
        ),
        (
            '{ kind = "timestamp", min = 2020-01-01 }',
            ["a.min: must be an RFC 3339 time with an offset, not 2020-01-01"],
        ),
        ('{ kind = "timestamp", min = 5 }', ["a.min: must be an RFC 3339 time with an offset, not 5"]),
        ('{ kind = "text", min = 1 }', ["a.min: must be text, not 1"]),
        (
            '{ kind = "text", min = "longer text 1", max = "longer text 2" }',
            ["a.max: must be greater than min: 'longer text 1' .. 'longer text 2'"],
        ),
        ('{ kind = "boolean", min = 0 }', ["a.min: a boolean has no such bound"]),
        ('{ kind = "category" }', ["a.values: missing; a category declares its values, in order"]),
        ('{ kind = "category", values = [] }', ["a.values: must hold at least one value"]),
        (
            '{ kind = "category", values = ["x", "x", 3] }',
            ["a.values: item 2: 'x' is given twice; item 3: must be text, not 3"],
        ),
        ('{ kind = "int", values = ["x"] }', ["a.values: only a category has values, not a int"]),
        (
            '{ kind = "text", imprecise = "certain" }',
            ["a.imprecise: only int, float and timestamp can be imprecise, not text"],
        ),
        ('{ kind = "int", imprecise = true }', ["a.imprecise: must be one of certain, possible, not true"]),
        ('{ kind = "int", minimum = 3 }', ["a.minimum: unknown key; did you mean 'min'?"]),
    ],
)
def test_faults_of_attributes(attribute: str, faults: list[str]) -> None:
    """Kinds and domains that cannot be are refused, each key at its own place."""
    found = _faults(f'{OVERLAY}[types."x.y".attributes]\na = {attribute}')
    assert found == [f'types."x.y".attributes.{fault}' for fault in faults]


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        (
            'reduction = "siena"',
            [
                "reduction: must be one of none, covering, merging, mics, negative-space, probabilistic, hybrid, "
                "not 'siena'"
            ],
        ),
        ('reduction = "merging"\nparameters = { budget = -1 }', ["parameters.budget: must be a number from 0, not -1"]),
        ('reduction = "merging"\nparameters = { gap = 1 }', ["parameters.gap: unknown key"]),
        (
            'reduction = "merging"\nparameters = { budget = "much", gap = 1 }',
            ["parameters.budget: must be a number from 0, not 'much'", "parameters.gap: unknown key"],
        ),
        ("advertisements = 1", ["advertisements: must be true or false, not 1"]),
        ('matcher = "r-tree"', ["matcher: must be one of bitmap, s-tree, not 'r-tree'"]),
        (
            'matcher = "s-tree"\nmatcher_parameters = { skew = 0, fanout = 1, step = 2 }',
            [
                "matcher_parameters.skew: must be a number from 0.01 to 0.5, not 0",
                "matcher_parameters.fanout: must be an integer from 2 to 1024, not 1",
                "matcher_parameters.step: unknown key",
            ],
        ),
        (
            "matcher_parameters = { fanout = 9 }",
            ['matcher_parameters: only matcher = "s-tree" has parameters'],
        ),
        ("parameters = 1", ["parameters: must be a table, not 1"]),
        ("pruning = 9", ["pruning: must be a table, not 9"]),
        (
            "pruning = { subscriptions = 0 }",
            ["pruning.subscriptions: must be an integer from 1 to 1000000000000, not 0"],
        ),
        ("pruning = { advertisements = 9 }", ["pruning: a budget for advertisements needs advertisements = true"]),
        (
            "advertisements = true\npruning = { advertisement = 9 }",
            ["pruning.advertisement: unknown key; did you mean 'advertisements'?"],
        ),
        ("cubes = 12", ["cubes: must be a power of two, not 12"]),
        ("cubes = 8192", ["cubes: must be an integer from 1 to 4096, not 8192"]),
        ('index = ["a", "zz"]', ["index: 'zz' is no attribute of this type"]),
        ('index = ["a", "a"]', ["index: item 2: 'a' is given twice"]),
        ('index = ["a", "b", "c", "d", "e", "f", "g"]', ["index: must name at most 6 attributes, not 7"]),
        (
            'index = ["a", "b", "c", "d"]\nbits = 16',
            ["bits: 4 dimensions of 16 bits are 64, more than 63; take fewer bits, or fewer attributes into index"],
        ),
        (
            'index = ["a", "b", "c", "d", "e", "f"]\nbits = 11',
            ["bits: 6 dimensions of 11 bits are 66, more than 63; take fewer bits, or fewer attributes into index"],
        ),
        ("bits = 1", ["cubes: 16 cubes are more than the 2^3 cells of the grid"]),
        ('index = ["a"]\nbits = 64', ["bits: must be an integer from 1 to 16, not 64"]),
        ('index = ["a"]\nbits = 3\ncubes = 16', ["cubes: 16 cubes are more than the 2^3 cells of the grid"]),
    ],
)
def test_faults_of_types(lines: str, faults: list[str]) -> None:
    """Reductions, cubes and grids that cannot be are refused."""
    attributes = "\n".join(f'{name} = {{ kind = "int" }}' for name in "abcdefg")
    found = _faults(f"{OVERLAY}[types.t]\n{lines}\n[types.t.attributes]\n{attributes}")
    assert found == [f"types.t.{fault}" for fault in faults]


@pytest.mark.parametrize("named", [0, 1, 3, 6])
@pytest.mark.parametrize("attributes", [1, 2, 5, 8])
def test_what_is_accepted_has_a_grid(attributes: int, named: int) -> None:
    """A type passes exactly if its grid can be made: bits and cubes are judged by the dimensions that it will have."""
    names = [f"a{i}" for i in range(attributes)]
    fields = tuple(Attribute(name, "int", min=0, max=1000) for name in names)
    table = "\n".join(f'{name} = {{ kind = "int", min = 0, max = 1000 }}' for name in names)
    for bits, cubes in product((None, 1, 2, 5, 11, 16), (1, 16, 1024)):
        lines = f"cubes = {cubes}\nindex = {names[:named]}\n" + (f"bits = {bits}\n" if bits else "")
        event_type = EventType("t", fields, cubes=cubes, index=tuple(names[:named]), bits=bits)
        made, passed = True, True
        try:
            Grid.of(event_type)
        except ConfigError:
            made = False
        try:
            parse(f"{OVERLAY}[types.t]\n{lines}[types.t.attributes]\n{table}")
        except ConfigError:
            passed = False
        assert passed == made, lines


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('broker = "b1"\ntype = "stock.quote"', "sources[1].topic: missing; or give pattern"),
        ('topic = "t"\ntype = "stock.quote"', "sources[1].broker: missing; or give broker_header"),
        (
            'topic = "t"\npattern = "t"\nbroker = "b1"\ntype = "stock.quote"',
            "sources[1].pattern: topic is given already",
        ),
        (
            'topic = "t"\nbroker = "b1"\nbroker_header = "x"\ntype = "stock.quote"',
            "sources[1].broker_header: broker is given already",
        ),
        (
            'pattern = "t("\nbroker = "b1"\ntype = "stock.quote"',
            "sources[1].pattern: must be a regular expression: missing )",
        ),
        ('pattern = ""\nbroker = "b1"\ntype = "stock.quote"', "sources[1].pattern: must be a regular"),
        (
            'topic = "t"\nbroker_header = "hilcast_x"\ntype = "stock.quote"',
            "sources[1].broker_header: 'hilcast_x' is a header that hilcast itself",
        ),
        ('topic = "t"\nbroker = "b1"\nformat = "xml"\ntype = "stock.quote"', "sources[1].format: must be one of"),
        ('topic = "a b"\nbroker = "b1"\ntype = "stock.quote"', "sources[1].topic: must match"),
        (
            'topic = "hilcast.publications"\nbroker = "b1"\ntype = "stock.quote"',
            "sources[1].topic: 'hilcast.publications' is under",
        ),
        (
            'topic = "hilcast_deliver_x"\nbroker = "b1"\ntype = "stock.quote"',
            "sources[1].topic: 'hilcast_deliver_x' is under",
        ),
        ('topic = "t"\nbroker = "b9"\ntype = "stock.quote"', "sources[1].broker: 'b9' is no broker of the overlay"),
        ('topic = "t"\nbroker = "b1"\ntype = "x"', "sources[1].type: 'x' is no event type"),
        ('topic = "t"\nbroker = "b1"\ntype = "stock.quote"\nkey = 1', "sources[1].key: unknown key"),
    ],
)
def test_faults_of_sources(source: str, fault: str) -> None:
    """A source names a topic that is not ours, a broker and a type that exist."""
    (found,) = _faults(_with(f"[[sources]]\n{source}"))
    assert found.startswith(fault)


def test_a_topic_is_a_source_once() -> None:
    """Two readings of one topic would contradict each other."""
    source = '[[sources]]\ntopic = "t"\nbroker = "b1"\ntype = "stock.quote"\n'
    assert _faults(_with(source * 2)) == ["sources[2].topic: 't' is given twice"]


def test_a_pattern_is_a_source_once() -> None:
    """The second of two equal patterns could never count."""
    source = '[[sources]]\npattern = "t.*"\nbroker = "b1"\ntype = "stock.quote"\n'
    assert _faults(_with(source * 2)) == ["sources[2].pattern: 't.*' is given twice"]


def test_topics_that_patterns_match_become_sources() -> None:
    """A named topic stays as it is named, the first pattern counts, and ours, Kafka's and sinks are never sources."""
    config = parse(
        _with("""
[[sources]]
topic = "orders.de"
broker = "b1"
type = "stock.quote"
[[sources]]
pattern = 'orders\\..*'
broker_header = "x-broker"
type = "stock.quote"
[[sources]]
pattern = '.*'
broker = "b3"
type = "stock.quote"
""")
    )
    cluster = ["orders.de", "orders.fr", "trades", "hilcast.routed", "hilcast_x", "__consumer_offsets", "out"]
    found = {source.topic: source for source in config.with_topics(cluster, sinks=["out"]).sources}
    assert set(found) == {"orders.de", "orders.fr", "trades"}
    assert (found["orders.de"].broker, found["trades"].broker) == ("b1", "b3")
    assert (found["orders.fr"].broker, found["orders.fr"].broker_header) == (None, "x-broker")
    assert [source.topic for source in config.sources] == ["orders.de"]
    assert config.with_topics(cluster).fingerprint() == config.fingerprint()
    assert config.reads("orders.es")
    assert parse(SMALL).with_topics(cluster) == parse(SMALL)
    assert not parse(SMALL).reads("orders.es")


def _placed(place: str) -> str:
    return SMALL + f'x = {{ kind = "int", {place} }}\n'


@pytest.mark.parametrize(
    ("place", "members"),
    [
        ('path = "order.customer.country"', ("order", "customer", "country")),
        ("path = 'order.\"a.b\".c'", ("order", "a.b", "c")),
        ('path = \'"say \\"hi\\""\'', ('say "hi"',)),
        ('path = "x"', ("x",)),
        ('header = "x-region"', ()),
        ("key = true", ()),
        ("key = false", ("x",)),
    ],
)
def test_where_an_attribute_is(place: str, members: tuple[str, ...]) -> None:
    """Dots descend, a quoted part may hold a dot, and a header or the key takes the place of the document."""
    config = parse(_placed(place))
    attribute = config.types["stock.quote"].attribute("x")
    assert attribute.members == members
    assert (attribute.header == "x-region", attribute.key) == ("header" in place, place == "key = true")
    assert config.fingerprint() == parse(_placed("key = false")).fingerprint()


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        *[(f"path = '{path}'", "path: must be members") for path in ("", ".", "a.", ".a", "a..b", 'a."".b', 'a"b"')],
        *[(f"path = '{path}'", "path: must be members") for path in ('"a', '"a"b', 'a."b')],
        ("path = 3", "path: must be text"),
        (f"path = '{'a.' * 32}a'", "path: must descend at most 32 members, not 33"),
        ('header = ""', "header: must name a header"),
        ('header = "ce_type"', "header: 'ce_type' is a header that hilcast itself writes"),
        ('header = "hilcast_epoch"', "header: 'hilcast_epoch' is a header that"),
        ("key = 1", "key: must be true or false"),
        ('key = true, imprecise = "possible"', "imprecise: only what is in the document"),
        ('path = "a", header = "b"', "header: path is given already; an attribute is in one place"),
        ('header = "b", key = true', "key: header is given already"),
    ],
)
def test_faults_of_places(place: str, fault: str) -> None:
    """A place that cannot be is refused with its place in the file."""
    (found,) = _faults(_placed(place))
    assert found.startswith(f'types."stock.quote".attributes.x.{fault}')


def test_formats() -> None:
    """A type and a source may name a format; it makes no new generation."""
    written = _with("""
[types.order]
format = "protobuf"
[types.order.attributes]
x = { kind = "int" }
[schemas]
url = "http://127.0.0.1:8081"
[[sources]]
topic = "t"
broker = "b1"
format = "avro"
type = "order"
""")
    config = parse(written)
    order = config.types["order"]
    assert (order.format, order.schema, order.subject) == ("protobuf", None, None)
    assert config.sources[0].format == "avro"
    assert config.fingerprint() == parse(written.replace('format = "protobuf"', "")).fingerprint()


@pytest.mark.parametrize(
    ("brokers", "links", "fault"),
    [
        (["a", "b", "c"], [["a", "b"], ["b", "c"], ["c", "a"]], "cycle c - b - a - c; an overlay is acyclic"),
        (["a", "b"], [["a", "b"], ["b", "a"]], "['b', 'a'] is given twice"),
        (["a", "b"], [["a", "b"], ["b", "b"]], "['b', 'b'] links a broker to itself"),
        (["a", "b", "c"], [["a", "b"]], "not connected: no path from 'a' to 'c'"),
        (["a", "b"], [["a", "b"], ["a", "z"]], "['a', 'z']: 'z' is not in overlay.brokers"),
        (["a", "b"], [["a", "b", "a"]], "item 1: must be a pair of brokers, not ['a', 'b', 'a']"),
        (
            ["a", "b_c", "a_b", "c"],
            [["a", "b_c"], ["a_b", "c"], ["a", "c"]],
            "hilcast.link.a.b_c and hilcast.link.a_b.c collide",
        ),
        (["x", "x_x"], [["x", "x_x"]], "hilcast.link.x.x_x and hilcast.link.x_x.x collide"),
    ],
)
def test_faults_of_links(brokers: list[str], links: list[list[str]], fault: str) -> None:
    """What is no tree is refused, with the cycle or the part named, and so are topics Kafka cannot tell apart."""
    found = _faults(f"[overlay]\nbrokers = {brokers}\nlinks = {links}\n{TYPES}".replace("'", '"'))
    assert any(one.startswith(f"overlay.links: {fault}") for one in found)
    assert all(one.startswith("overlay.links: ") for one in found)


def test_all_faults_come_at_once() -> None:
    """One run names everything that is wrong, in every part of the file."""
    found = _faults("""
[deployment]
stale = "no"
[overlay]
brokers = ["b1", "b 2"]
[types.t]
cubes = 3
[types.t.attributes]
x = { kind = "int", min = 5, max = 4 }
y = { kind = "category" }
[settings]
trigger_ms = -1
[more]
""")
    places = [fault.split(": ")[0] for fault in found]
    assert sorted(places) == sorted(
        [
            "deployment.stale",
            "overlay.brokers",
            "types.t.cubes",
            "types.t.attributes.x.max",
            "types.t.attributes.y.values",
            "settings.trigger_ms",
            "more",
        ]
    )


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a directory and bytes that are not UTF-8 are faults like others."""
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    for name, reason in (("none.toml", "No such file"), ("", "Is a directory"), ("latin.toml", "not UTF-8 at byte 6")):
        with pytest.raises(ConfigError, match=re.escape(reason)):
            load(tmp_path / name)


JUNK = st.recursive(
    st.one_of(st.booleans(), st.integers(-3, 3), st.floats(), st.sampled_from(["", "b1", "x", "int", "float"])),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["kind", "min", "values", "attributes", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


KEYS = ["deployment", "overlay", "types", "sources", "kafka", "redis", "spark", "settings", "distribution", "junk"]
INNER = ["name", "hosts", "brokers", "links", "t", "topic", "a", "groups", "trigger_ms", "b1"]


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), st.dictionaries(st.sampled_from(INNER), JUNK, max_size=3) | JUNK, max_size=4)
)
def test_any_tables_are_faults_not_crashes(raw: dict[str, object]) -> None:
    """Whatever kinds of values stand where, the answer is a Config or a ConfigError."""
    text = "\n".join(f"{key} = {_toml(value)}" for key, value in raw.items())
    try:
        found = [] if isinstance(parse(text), Config) else ["not a Config: "]
    except ConfigError as error:
        found = error.faults or ["refused without a fault"]
        found = [fault for fault in found if ": " not in fault]
    assert not found


# --- secrets ------------------------------------------------------------------------------------------------


def test_no_secret_is_printed() -> None:
    """Neither `repr` nor `str` of a configuration or of any of its parts shows a password."""
    config = parse(
        _with("""
[deployment]
redis = "redis://me:hush@127.0.0.1:6379/0"
"kafka.sasl.password" = "hush"
[kafka]
"sasl.jaas.config" = "required password=hush"
"ssl.key.password" = "hush"
"ssl.key.pem" = "hush"
[redis]
password = "hush"
[spark]
"spark.ssl.keyStorePassword" = "hush"
"spark.hadoop.fs.s3a.secret.key" = "hush"
"spark.proxy" = "http://u:hush@h"
""")
    )
    for part in (config, config.deployment, config.kafka, config.redis, config.spark):
        assert "hush" not in repr(part)
        assert "hush" not in str(part)
        assert "hush" not in f"{part}"
    assert config.kafka["sasl.password"] == "hush"
    assert redacted(config.deployment.redis) == "redis://me:***@127.0.0.1:6379/0"


def test_no_secret_is_in_a_fault() -> None:
    """A message about a wrong address, or a secret given twice, does not repeat the secret."""
    found = _faults(
        _with("""
[deployment]
redis = "user:hush@h"
kafka = "u:hush@h:1"
prefix = "redis://u:hush@h"
"kafka.sasl.password" = "hush"
[kafka]
"sasl.password" = ["hush"]
""")
    )
    assert len(found) == 5
    assert "hush" not in "".join(found)


def test_where_keys_lie_is_no_secret() -> None:
    """Names of files and users stay readable, so that a printed configuration is of use."""
    config = parse(_with('[kafka]\n"ssl.key.location" = "k.pem"\n"sasl.username" = "me"'))
    assert repr(config.kafka) == "{'ssl.key.location': 'k.pem', 'sasl.username': 'me'}"


# --- fingerprints -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"b3"]\n', '"b3", "b4"]\n'),
        ('["b2", "b3"]]', '["b1", "b3"]]'),
        ("max = 1000", "max = 1001"),
        ('kind = "float", min = 0, max = 1000', 'kind = "int", min = 0, max = 1000'),
        ("price", "cost"),
        ("price =", 'first = { kind = "int" }\nprice ='),
        ('[types."stock.quote".attributes]', '[types."stock.quote"]\ncubes = 8\n[types."stock.quote".attributes]'),
        ('[types."stock.quote".attributes]', '[types."stock.quote"]\nbits = 8\n[types."stock.quote".attributes]'),
        (
            '[types."stock.quote".attributes]',
            '[types."stock.quote"]\nindex = ["price"]\n[types."stock.quote".attributes]',
        ),
        (
            '[types."stock.quote".attributes]',
            '[types."stock.quote"]\nreduction = "mics"\n[types."stock.quote".attributes]',
        ),
        (
            '[types."stock.quote".attributes]',
            '[types."stock.quote"]\nadvertisements = true\n[types."stock.quote".attributes]',
        ),
        (
            '[types."stock.quote".attributes]',
            '[types."stock.quote"]\nreduction = "mics"\nparameters = {cap = 9}\n[types."stock.quote".attributes]',
        ),
        ("[overlay]", "[settings]\nhome_shards = 9\n[overlay]"),
        ("[overlay]", "[settings]\nwide_shards = 9\n[overlay]"),
        (
            '[types."stock.quote".attributes]',
            '[types."stock.quote".pruning]\nsubscriptions = 9\n[types."stock.quote".attributes]',
        ),
        (
            '[types."stock.quote".attributes]',
            '[types."stock.quote"]\nmatcher = "s-tree"\n[types."stock.quote".attributes]',
        ),
        ("max = 1000", 'max = 1000, imprecise = "certain"'),
    ],
)
def test_what_makes_a_new_generation(old: str, new: str) -> None:
    """Overlay, types, grid, reduction, matcher and shards each change the fingerprint."""
    assert old in SMALL
    text = SMALL.replace(old, new)
    if '"b4"' in text:
        text = text.replace('["b2", "b3"]]', '["b2", "b3"], ["b3", "b4"]]')
    assert parse(text).fingerprint() != parse(SMALL).fingerprint()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[overlay]", '[deployment]\nkafka = "h:1"\nredis = "redis://h"\ncheckpoint = "x"\nhosts = ["b1"]\n[overlay]'),
        ("[overlay]", "[settings]\ntrigger_ms = 9\n[overlay]"),
        ('["b1", "b2"], ["b2", "b3"]', '["b3", "b2"], ["b1", "b2"]'),
        ('["b1", "b2", "b3"]', '["b3", "b2", "b1"]'),
        ("min = 0, max = 1000", "max = 1000.0, min = -0.0"),
        ("[overlay]", '[kafka]\n"client.id" = "x"\n[overlay]'),
    ],
)
def test_what_makes_none(old: str, new: str) -> None:
    """Addresses, hosts, tunables, and the order or notation of the file leave the fingerprint as it is."""
    assert old in SMALL
    assert parse(SMALL.replace(old, new)).fingerprint() == parse(SMALL).fingerprint()


def test_fingerprints_are_stable() -> None:
    """The fingerprint is of the content alone: this one must not change from version to version."""
    assert parse(SMALL).fingerprint() == "76ecdbd783090151"


# --- overlay and topics -------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(*(st.integers(0, max(i - 1, 0)) for i in range(n)))))
def test_trees(parents: tuple[int, ...]) -> None:
    """Of any tree: neighbours are its links, paths are shortest, and the diameter is the longest of them."""
    brokers = tuple(f"b{i}" for i in range(len(parents)))
    links = tuple((brokers[i], brokers[parent]) for i, parent in enumerate(parents) if i > 0)
    overlay = Overlay(brokers, links)
    overlay.check()
    far = len(brokers) + 1
    distance = {(a, b): 0 if a == b else far for a in brokers for b in brokers}
    distance |= {pair: 1 for a, b in links for pair in ((a, b), (b, a))}
    for middle in brokers:  # Floyd and Warshall
        for a in brokers:
            for b in brokers:
                distance[a, b] = min(distance[a, b], distance[a, middle] + distance[middle, b])
    for a in brokers:
        assert overlay.neighbours(a) == tuple(sorted(b for b in brokers if distance[a, b] == 1))
        for b in brokers:
            path = overlay.path(a, b)
            assert (path[0], path[-1], len(path)) == (a, b, distance[a, b] + 1)
            assert all(distance[pair] == 1 for pair in pairwise(path))
    assert overlay.diameter() == max(distance.values())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=6))
def test_only_trees_pass(links: list[tuple[str, str]]) -> None:
    """Links over four brokers pass exactly if there are three, all different, that join them all."""
    brokers = ("a", "b", "c", "d")
    joined = {broker: {broker} for broker in brokers}
    for a, b in links:
        union = joined[a] | joined[b]
        for broker in union:
            joined[broker] = union
    tree = len(links) == 3 and len(joined["a"]) == 4
    assert (faults(brokers, links) == []) == tree


def test_topic_names() -> None:
    """Topics have the names of docs/messages.md, under any prefix."""
    topics = Topics("x.y")
    names = [
        topics.subscriptions,
        topics.advertisements,
        topics.registry,
        topics.publications,
        topics.control,
        topics.receipts,
        topics.deadletter,
        topics.routed,
        topics.progress,
    ]
    words = "subscriptions advertisements registry publications control receipts deadletter routed progress"
    assert names == [f"x.y.{word}" for word in words.split()]
    assert topics.link("a", "b") == "x.y.link.a.b"
    assert topics.deliver("alice") == "x.y.deliver.alice"
    assert topics.group("a", 3) == "x.y.group.a.3"
    assert topics.broadcast("a") == "x.y.broadcast.a"
    assert parse(_with('[deployment]\nprefix = "x.y"')).topics == topics
