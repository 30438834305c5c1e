"""The online book auction of [BADV06] §6.1: seeded advertisements, subscriptions and publications.

Eight classes of advertisements and three of subscriptions, as their descriptions and Table 2 give them:

    A1  category, and: Buy It Now from a price, or signed from a price
    A2  author, and the same                             A6  A3 without the title
    A3  title, and: used from a price, or new from one   A7  A4 without the title
    A4  title, and: softcover, or hardcover, from one    A8  A5 without the title
    A5  title, and a price for each of the four
    S1  title, ending within a day, and: used below a price, or new below one
    S2  title, ending within a day, and a price for each of used, new and softcover, hardcover
    S3  author or category, and: signed and Buy It Now, or ending within a day and (signed or without a bid)

The paper draws all values uniformly from "reasonable values" and prints none of the ranges. Ours: `PRICES`,
chosen so that the shares of overlapping advertisements come near Table 3 (0.04, 0.35 and 1.0), 4,000 titles,
1,000 authors and 24 categories. Of several prices in one filter the lower ones go to used before new and to
softcover before hardcover, as in the paper's examples.

Differs: "contains the phrase" is `=`: the paper's prototype has integers only (§4.4). Table 2 misprints the
operators of S2 (10 and 2; its 12 predicates need 7 and 3) and the disjunctions of A8 (2; there are 3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from state.filters.tree import And, Filter, Operator, Or, Predicate, Value
from state.space.event_type import Attribute, EventType

CATEGORIES = (
    *("Action", "Adventure", "Animals", "Art", "Biography", "Business", "Children", "Classics", "Comics"),
    *("Cooking", "Crime", "Fantasy", "Gardening", "Health", "History", "Horror", "Humour", "Music", "Nature"),
    *("Poetry", "Romance", "Science", "Sport", "Travel"),
)
_QUALITIES = (
    *("Silent", "Golden", "Hidden", "Broken", "Distant", "Winter", "Crimson", "Last", "First", "Burning"),
    *("Frozen", "Lost", "Secret", "Empty", "Wild", "Quiet", "Bitter", "Northern", "Little", "Endless"),
)
_THINGS = (
    *("River", "Garden", "House", "Letter", "Voyage", "Mirror", "Kingdom", "Orchard", "Harbour", "Winter"),
    *("Stranger", "Clock", "Bridge", "Daughter", "Island", "Promise", "Shadow", "Library", "Door", "Song"),
)
_PLACES = (*("Waikato", "Otago", "Lisbon", "Prague", "Kyoto", "Dublin", "Cairo", "Bergen", "Lima", "Samoa"),)
TITLES = tuple(f"The {quality} {thing} of {place}" for quality in _QUALITIES for thing in _THINGS for place in _PLACES)  # fmt: skip  # noqa: E501
_GIVEN = (
    *("Ada", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Hana", "Ivan", "Jane"),
    *("Karl", "Lena", "Mere", "Nora", "Oscar", "Paula", "Rewi", "Sara", "Tane", "Vera"),
)
_FAMILY = (
    *("Adams", "Baker", "Clark", "Davis", "Evans", "Foster", "Green", "Hill", "Irwin", "Jones"),
    *("King", "Lewis", "Moore", "Nash", "Owen", "Price", "Quinn", "Reid", "Scott", "Turner"),
    *("Upton", "Vance", "Walker", "Young", "Archer", "Bishop", "Carter", "Dixon", "Ellis", "Frost"),
    *("Grant", "Hayes", "Jarvis", "Kerr", "Lamb", "Mercer", "Norris", "Oakley", "Parker", "Ross"),
    *("Sharp", "Todd", "Usher", "Vaughan", "Webb", "Yates", "Abbot", "Brooks", "Cole", "Drake"),
)
AUTHORS = tuple(f"{given} {family}" for given in _GIVEN for family in _FAMILY)
SPECIALS = ("signed", "first edition", "limited")
DAY_HOURS = 24

AUCTION = EventType(
    "book.auction",
    (
        Attribute("title", "text"),
        Attribute("author", "text"),
        Attribute("category", "text"),
        Attribute("condition", "category", values=("used", "new")),
        Attribute("format", "category", values=("softcover", "hardcover")),
        Attribute("price", "float", min=0, max=60),
        Attribute("ending", "int", min=0, max=7 * DAY_HOURS),
        Attribute("buy_it_now", "boolean"),
        Attribute("special", "text"),
        Attribute("bids", "int", min=0, max=30),
    ),
    advertisements=True,
)
"""Prices in dollars; `ending` in hours until the auction ends."""

PRICES: dict[str, tuple[float, float]] = {"A": (10.0, 50.0), "S1": (5.0, 15.0), "S2": (5.0, 36.0)}
"""The range of prices of advertisements and of the two classes of subscriptions that have any."""
ADVERTISEMENT_CLASSES = ("A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8")
SUBSCRIPTION_CLASSES = ("S1", "S2", "S3")


def _is(attribute: str, value: Value) -> Predicate:
    return Predicate(attribute, Operator.EQ, (value,))


_SIGNED, _BUY_IT_NOW = _is("special", "signed"), _is("buy_it_now", True)
_USED, _NEW = _is("condition", "used"), _is("condition", "new")
_SOFTCOVER, _HARDCOVER = _is("format", "softcover"), _is("format", "hardcover")
_ENDS_TODAY = Predicate("ending", Operator.LT, (DAY_HOURS,))
_NO_BIDS = _is("bids", 0)


class Auction:
    """Draws filters and publications; the same seed and the same calls give the same ones.

    >>> from state.filters.printing import to_text
    >>> to_text(Auction(seed=1).advertisement("A6"))
    "condition = 'used' AND price >= 15.5 OR condition = 'new' AND price >= 44.0"
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._of_class: dict[str, Callable[[], Filter]] = {
            "A1": lambda: self._offer(self._of("category", CATEGORIES), _BUY_IT_NOW, _SIGNED),
            "A2": lambda: self._offer(self._of("author", AUTHORS), _BUY_IT_NOW, _SIGNED),
            "A3": lambda: self._offer(self._of("title", TITLES), _USED, _NEW),
            "A4": lambda: self._offer(self._of("title", TITLES), _SOFTCOVER, _HARDCOVER),
            "A5": lambda: And((self._of("title", TITLES), _by_both(self._prices("A", 4, Operator.GE)))),
            "A6": lambda: self._either(_USED, _NEW),
            "A7": lambda: self._either(_SOFTCOVER, _HARDCOVER),
            "A8": lambda: _by_both(self._prices("A", 4, Operator.GE)),
            "S1": self._s1,
            "S2": self._s2,
            "S3": self._s3,
        }

    def advertisement(self, name: str) -> Filter:
        """An advertisement of one class, A1 to A8."""
        assert name in ADVERTISEMENT_CLASSES, name
        return self._of_class[name]()

    def subscription(self, name: str) -> Filter:
        """A subscription of one class, S1 to S3."""
        assert name in SUBSCRIPTION_CLASSES, name
        return self._of_class[name]()

    def advertisements(self, n: int, classes: Sequence[str] = ADVERTISEMENT_CLASSES) -> Iterator[Filter]:
        """`n` advertisements, each class as likely as the others."""
        return (self.advertisement(self._random.choice(classes)) for _ in range(n))

    def subscriptions(self, n: int, classes: Sequence[str] = SUBSCRIPTION_CLASSES) -> Iterator[Filter]:
        """`n` subscriptions, each class as likely as the others."""
        return (self.subscription(self._random.choice(classes)) for _ in range(n))

    def publications(self, n: int) -> Iterator[dict[str, object]]:
        """`n` offers of books: attributes as a publisher would send them."""
        for _ in range(n):
            draw = self._random
            offer: dict[str, object] = {
                "title": draw.choice(TITLES),
                "author": draw.choice(AUTHORS),
                "category": draw.choice(CATEGORIES),
                "condition": draw.choice(("used", "new")),
                "format": draw.choice(("softcover", "hardcover")),
                "price": self._price(1.0, 60.0),
                "ending": draw.randrange(7 * DAY_HOURS),
                "buy_it_now": draw.random() < 0.25,
                "bids": draw.choice((0, 0, draw.randrange(1, 30))),
            }
            if draw.random() < 0.1:
                offer["special"] = draw.choice(SPECIALS)
            yield offer

    def _of(self, attribute: str, values: Sequence[str]) -> Predicate:
        return _is(attribute, self._random.choice(values))

    def _price(self, low: float, high: float) -> float:
        return round(2 * self._random.uniform(low, high)) / 2

    def _prices(self, name: str, n: int, operator: Operator) -> list[Predicate]:
        prices = sorted(self._price(*PRICES[name]) for _ in range(n))
        return [Predicate("price", operator, (price,)) for price in prices]

    def _either(self, one: Predicate, other: Predicate) -> Filter:
        low, high = self._prices("A", 2, Operator.GE)
        return Or((And((one, low)), And((other, high))))

    def _offer(self, subject: Predicate, one: Predicate, other: Predicate) -> Filter:
        return And((subject, self._either(one, other)))

    def _s1(self) -> Filter:
        title, (low, high) = self._of("title", TITLES), self._prices("S1", 2, Operator.LT)
        return And((title, _ENDS_TODAY, Or((And((_USED, low)), And((_NEW, high))))))

    def _s2(self) -> Filter:
        return And((self._of("title", TITLES), _ENDS_TODAY, _by_both(self._prices("S2", 4, Operator.LT))))

    def _s3(self) -> Filter:
        subject = Or((self._of("author", AUTHORS), self._of("category", CATEGORIES)))
        soon = And((_ENDS_TODAY, Or((_SIGNED, _NO_BIDS))))
        return And((subject, Or((And((_SIGNED, _BUY_IT_NOW)), soon))))


def _by_both(prices: Sequence[Predicate]) -> Filter:
    """A price for each of the four: used softcover, used hardcover, new softcover, new hardcover."""
    parts = []
    for format, of_format in ((_SOFTCOVER, prices[0::2]), (_HARDCOVER, prices[1::2])):
        used, new = (And((condition, price)) for condition, price in zip((_USED, _NEW), of_format, strict=True))
        parts.append(And((format, Or((used, new)))))
    return Or(tuple(parts))
