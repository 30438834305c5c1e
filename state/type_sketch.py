"""A type from what is there: a proposal from a sample of documents; and whether events still look like their type.

    documents ──leaves by path──> kind, values, range, cardinality ──> [types.NAME] as text
    events    ──ranks──> share of absent, share beyond the grid   ──> what `hilcast doctor` says of a type

A proposal is to be read and changed by people: what was found is said in comments, and so is what was left out and
why. Nothing is guessed beyond the sample: `min` and `max` are the least and the greatest value seen, and shape the
grid only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from state.limits import PATH_MAX
from state.space.cells import uniform_starts
from state.space.event_type import DIMENSIONS_DEFAULT, Attribute, EventType, Kind
from state.space.ranks import ABSENT, ABSENT_SPAN, grid_span, rank, rank_span, timestamp_micros

CATEGORY_MAX = 24
"""Texts of so few different values, each seen this often on average, are proposed as a category:"""
REPEATS_MIN = 4
ATTRIBUTES_MAX = 32
"""Attributes of a proposal; members beyond are named in comments."""
LEFT_OUT_MAX = 32
CELL_BITS = 4
"""How finely selectivity is judged: 16 cells of an attribute."""
UNSELECTIVE = 0.9
"""An attribute that two events share a cell of with this probability divides nothing."""

Path = tuple[str, ...]
Document = Mapping[str, object]


# --- a proposal ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Leaf:
    """A member that holds values, as far as it could be understood."""

    attribute: Attribute
    present: float
    """The share of documents that have it."""
    distinct: int
    sharing: float
    """The probability that two documents lie in one cell of it: the lower, the more selective."""


def sketch(name: str, documents: Sequence[Document], head: Sequence[str] = ()) -> str:
    """Return a type for `hilcast.toml` that describes these documents; `head` are further lines of its table.

    Guarantee: with an overlay it is a configuration that is accepted, and every value of a proposed attribute that is
    among the documents is read as present.
    Cost: O(values).

    >>> print(sketch("order", [{"id": i, "to": {"country": "DE" if i % 3 else "FR"}} for i in range(60)]))
    # from a sample of 60 documents; read it, and change what is not meant so
    [types."order"]
    index = ["id", "country"]  # the most selective first
    <BLANKLINE>
    [types."order".attributes]
    id = { kind = "int", min = 0, max = 59 }  # in 100 %, 60 distinct
    country = { kind = "category", values = ["DE", "FR"], path = "to.country" }  # in 100 %, 2 distinct
    <BLANKLINE>
    """
    seen: dict[Path, list[object]] = {}
    for document in documents:
        for path, value in _leaves(document):
            seen.setdefault(path, []).append(value)
    leaves: list[_Leaf] = []
    left_out: list[str] = []
    for path, values in sorted(seen.items(), key=lambda item: -len(item[1])):
        found = _leaf(path, values, len(documents))
        if isinstance(found, str):
            left_out.append(f"{path_text(path)}: {found}")
        elif len(leaves) == ATTRIBUTES_MAX:
            left_out.append(f"{path_text(path)}: a {found.attribute.kind}; enough are proposed")
        else:
            leaves.append(found)
    return _written(name, len(documents), _named(leaves), left_out, head)


def _leaves(document: Document, above: Path = ()) -> Iterator[tuple[Path, object]]:
    """The members of a document that are no objects, with the way to them; null is nothing."""
    for name, value in document.items():
        path = (*above, name)
        if isinstance(value, Mapping):
            if len(path) < PATH_MAX:
                yield from _leaves(value, path)
        elif value is not None:
            yield path, value


def _leaf(path: Path, values: Sequence[object], documents: int) -> _Leaf | str:
    """What the values of a member are; in words where they are no attribute."""
    if not all(_is_writable(member) for member in path):
        return "a name that no configuration can hold"
    kind = _kind(values)
    if kind is None:
        return _why_not(values)
    attribute = _with_domain(Attribute(path[-1], kind, path=path), values)
    if any(rank(attribute, value) == ABSENT for value in values):
        return "values that no attribute can hold"
    ranks = [rank(attribute, value) for value in values] + [ABSENT] * (documents - len(values))
    return _Leaf(attribute, len(values) / documents, len(set(map(str, values))), _sharing(attribute, ranks))


def _is_writable(member: str) -> bool:
    try:
        member.encode()
    except UnicodeEncodeError:
        return False
    return member != ""


def _kind(values: Sequence[object]) -> Kind | None:
    if all(isinstance(value, bool) for value in values):
        return "boolean"
    if any(isinstance(value, bool) for value in values):
        return None
    if all(isinstance(value, int) for value in values):
        return "int"
    if all(isinstance(value, int | float) for value in values):
        return "float"
    if not all(isinstance(value, str) for value in values):
        return None
    if all(timestamp_micros(str(value)) is not None for value in values):
        return "timestamp"
    distinct = set(values)
    repeats = len(distinct) <= CATEGORY_MAX and len(values) >= REPEATS_MIN * len(distinct)
    return "category" if repeats and all(_is_writable(str(value)) for value in distinct) else "text"


def _why_not(values: Sequence[object]) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "an array"}
    kinds = sorted({names.get(type(value), "something else") for value in values})
    return kinds[0] if len(kinds) == 1 else f"not of one kind ({', '.join(kinds)})"


def _with_domain(attribute: Attribute, values: Sequence[object]) -> Attribute:
    """The attribute with what shapes its grid: declared values, or the least and the greatest one."""
    if attribute.kind == "category":
        return replace(attribute, values=tuple(sorted(map(str, set(values)))))
    if attribute.kind not in ("int", "float", "timestamp"):
        return attribute
    ordered = sorted(((rank(attribute, value), value) for value in values), key=lambda pair: pair[0])
    (low, least), (high, greatest) = ordered[0], ordered[-1]
    if low in (ABSENT, high):
        return attribute
    return replace(attribute, min=_bound(attribute, least), max=_bound(attribute, greatest))


def _bound(attribute: Attribute, value: object) -> int | float | str:
    if attribute.kind == "float":
        return float(str(value))
    assert isinstance(value, int | str), value
    return value


def _sharing(attribute: Attribute, ranks: Iterable[int]) -> float:
    """The probability that two of these ranks lie in one cell of the attribute's own grid."""
    starts = uniform_starts(attribute, CELL_BITS)
    cells = np.searchsorted(starts, np.array(list(ranks), np.int64), side="right")
    shares = np.bincount(cells) / len(cells)
    return float((shares**2).sum())


def _named(leaves: Sequence[_Leaf]) -> list[_Leaf]:
    """Attributes are called by the last member; where several would have one name, by the whole path."""
    uses = Counter(leaf.attribute.name for leaf in leaves)
    taken: set[str] = set()
    named = []
    for leaf in leaves:
        path = leaf.attribute.members
        name = path[-1] if uses[path[-1]] == 1 else "_".join(path)
        while name in taken or (name != path[-1] and name in uses):
            name += "_"
        taken.add(name)
        place = None if path == (name,) else path
        named.append(replace(leaf, attribute=replace(leaf.attribute, name=name, path=place)))
    return named


# --- as text ------------------------------------------------------------------------------------------------


def path_text(path: Path) -> str:
    """A path as the configuration takes it: parts that hold a dot, a quote or a backslash are quoted.

    >>> path_text(("order", "a.b", 'say "hi"'))
    'order."a.b"."say \\\\"hi\\\\""'
    """
    return ".".join(_part(member) for member in path)


def _part(member: str) -> str:
    if member and not set('."\\') & set(member):
        return member
    escaped = member.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _written(name: str, documents: int, leaves: Sequence[_Leaf], left_out: Sequence[str], head: Sequence[str]) -> str:
    lines = [f"# from a sample of {documents} documents; read it, and change what is not meant so"]
    lines += [f"[types.{_quoted(name)}]", *head]
    selective = sorted((leaf for leaf in leaves if leaf.sharing < UNSELECTIVE), key=lambda leaf: leaf.sharing)
    if selective:
        names = ", ".join(_quoted(leaf.attribute.name) for leaf in selective[:DIMENSIONS_DEFAULT])
        lines.append(f"index = [{names}]  # the most selective first")
    lines += ["", f"[types.{_quoted(name)}.attributes]"]
    for leaf in leaves:
        lines.append(f"{_line(leaf.attribute)}  # in {100 * leaf.present:.0f} %, {leaf.distinct} distinct")
    if left_out:
        lines += ["", "# left out:"]
        lines += [f"#   {_one_line(reason)}" for reason in left_out[:LEFT_OUT_MAX]]
        if len(left_out) > LEFT_OUT_MAX:
            lines.append(f"#   and {len(left_out) - LEFT_OUT_MAX} more")
    return "\n".join(lines) + "\n"


def _line(attribute: Attribute) -> str:
    """An attribute as a line of the configuration."""
    facts = [f'kind = "{attribute.kind}"']
    if attribute.values:
        facts.append(f"values = [{', '.join(map(_quoted, attribute.values))}]")
    for key, bound in (("min", attribute.min), ("max", attribute.max)):
        if bound is not None:
            facts.append(f"{key} = {_quoted(bound) if isinstance(bound, str) else bound}")
    if attribute.path is not None:
        facts.append(f"path = {_quoted(path_text(attribute.path))}")
    bare = attribute.name.isascii() and attribute.name.replace("_", "").replace("-", "").isalnum()
    return f"{attribute.name if bare else _quoted(attribute.name)} = {{ {', '.join(facts)} }}"


def _quoted(text: str) -> str:
    """Text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _one_line(text: str) -> str:
    """Text in a comment, which ends with its line and can hold no control character."""
    return "".join(c if c.isprintable() else "?" for c in text)[:200]


# --- do events still look like their type? ------------------------------------------------------------------

ABSENT_SHARE = 0.5
BEYOND_SHARE = 0.2
"""From these shares on, `doctor` says that events do not look like their type."""


@dataclass(frozen=True)
class Likeness:
    """How the events of a sample look in one attribute."""

    attribute: str
    absent: float
    """The share of events that lack it, or have it of another kind."""
    beyond: float
    """The share that lies outside `min` and `max`: it falls into the outermost cells of the grid."""


def likeness(event_type: EventType, events: Sequence[Mapping[str, object]]) -> list[Likeness]:
    """How events look in each attribute of their type; nothing for no events.

    Intervals count as present, and as beyond the grid where they do not touch it.

    >>> quote = EventType("quote", (Attribute("price", "int", min=0, max=9), Attribute("symbol", "text")))
    >>> for found in likeness(quote, [{"price": 3}, {"price": 30}, {"price": "3"}, {"price": 4, "symbol": "A"}]):
    ...     print(found.attribute, found.absent, found.beyond)
    price 0.25 0.25
    symbol 0.75 0.0
    """
    found = []
    for attribute in event_type.attributes if events else ():
        spans = [rank_span(attribute, event.get(attribute.name)) for event in events]
        low, high = grid_span(attribute)
        absent = sum(span == ABSENT_SPAN for span in spans)
        beyond = sum(span != ABSENT_SPAN and (span[1] < low or span[0] > high) for span in spans)
        found.append(Likeness(attribute.name, absent / len(spans), beyond / len(spans)))
    return found


def unlike(found: Iterable[Likeness]) -> list[str]:
    """What is to be said of events that do not look like their type any more; nothing if they do."""
    said = []
    for one in found:
        if one.absent >= ABSENT_SHARE:
            said.append(f"{one.attribute} is absent, or of another kind, in {one.absent:.0%} of them")
        if one.beyond >= BEYOND_SHARE:
            said.append(f"{one.attribute} is outside min and max in {one.beyond:.0%} of them")
    return said
