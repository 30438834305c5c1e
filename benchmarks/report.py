"""How every benchmark shows what it found: tables, what a paper says beside what is so here, and pictures."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

matplotlib.use("Agg")
from matplotlib import pyplot

OUT = Path(__file__).parent / "out"


def title(text: str) -> None:
    print(f"\n== {text}\n")


def show(heading: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table under a title."""
    title(heading)
    table(head, rows)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns as wide as they need to be, numbers to three digits."""
    text = [list(head), *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for row in text:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


class Claim(NamedTuple):
    """What a paper's text states, with a number that could fail, and whether it is so here."""

    paper: str
    holds: bool


CLAIMS: list[Claim] = []
"""Of this process, in order."""


def claim(paper: str, holds: object) -> None:
    """Print a trend that the paper's text states, and whether it shows here; with `--strict` it decides the exit code.

    Only what holds for most of ten seeds is a claim; what does not is `unmet`.
    """
    CLAIMS.append(Claim(paper, bool(holds)))
    print(f"  paper: {paper}: {'so here' if holds else 'NOT SO HERE'}")


def unmet(paper: str, tried: str) -> None:
    """Print what the paper's text states and was not reproduced, with what was tried."""
    print(f"  paper: {paper}: NOT REPRODUCED; {tried}")


def add_seeds(parser: ArgumentParser) -> None:
    """Give a command `--seed`, `--seeds` and `--strict`."""
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from --seed on: a claim is what holds for most")
    parser.add_argument("--strict", action="store_true", help="fail if a claim does not hold")


def over_seeds(run: Callable[[int], None], first: int, count: int) -> None:
    """Run with each seed; what is claimed several times with one must hold each time, and for most of the seeds."""
    told: dict[str, list[bool]] = {}
    for seed in range(first, first + count):
        run(seed)
        here: dict[str, bool] = {}
        for one in CLAIMS:
            here[one.paper] = here.get(one.paper, True) and one.holds
        CLAIMS.clear()
        for paper, holds in here.items():
            told.setdefault(paper, []).append(holds)
    CLAIMS.extend(Claim(paper, 2 * sum(holds) > len(holds)) for paper, holds in told.items())
    if told and count > 1:
        rows = [(paper, f"{sum(holds)} of {len(holds)}") for paper, holds in told.items()]
        show(f"claims, seeds {first} to {first + count - 1}", ("", "holds for"), rows)


def conclude(strict: bool) -> None:
    """Count the claims; with `strict` the process fails if one of them did not hold."""
    failed = [one.paper for one in CLAIMS if not one.holds]
    if CLAIMS:
        print(f"\n{len(CLAIMS) - len(failed)} of {len(CLAIMS)} claims hold")
    CLAIMS.clear()
    if strict and failed:
        raise SystemExit("claims that do not hold: " + "; ".join(failed))


def plot(name: str, lines: dict[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str, log: str = "") -> None:
    """Draw lines to `benchmarks/out/NAME.png`; `log` names the axes that are logarithmic."""
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for label, (xs, ys) in lines.items():
        axes.plot(xs, ys, "-o", label=label)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(fontsize=8)
    save(figure, name)


def save(figure: Figure, name: str) -> None:
    """Write a picture to `benchmarks/out/NAME.png` and say so."""
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png", dpi=120, bbox_inches="tight")
    pyplot.close(figure)
    print(f"\n  picture: benchmarks/out/{name}.png")
