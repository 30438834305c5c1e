"""What the campaign says: a line for each fault, a table and a picture at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from benchmarks.faults.judge import Verdict
from benchmarks.faults.kind import KINDS
from benchmarks.faults.scene import Outcome
from benchmarks.report import pyplot, save, show

HEAD = ("kind", "faults", "failed", "publications", "deliveries", "expected", "repeats", "missing", "wrong",
        "unanswered", "restarts", "pause s, median", "worst", "promised")  # fmt: skip


def again(outcome: Outcome, short: bool) -> str:
    """The command that repeats one fault alone."""
    return f"python -m benchmarks.campaign --only {outcome.kind} --seed {outcome.seed}{' --short' if short else ''}"


def line(number: int, faults: int, outcome: Outcome) -> str:
    """The progress line of one fault."""
    verdict = outcome.verdict
    pause = "never went on" if outcome.pause_s is None else f"pause {outcome.pause_s:.1f} s"
    return (
        f"[{number}/{faults}] {'ok    ' if outcome.ok else 'FAILED'} {outcome.kind:<24} {pause}, "
        f"{verdict.publications:,} publications, {verdict.deliveries:,} deliveries, {len(verdict.missing)} missing, "
        f"{len(verdict.wrong)} wrong, {len(verdict.unanswered)} unanswered, {outcome.took_s:.0f} s"
        + "".join(f"; {remark}" for remark in outcome.remarks)
    )


def explain(outcome: Outcome, short: bool, log: str) -> str:
    """Everything that is known of a fault that failed."""
    verdict = outcome.verdict
    found = [f"    {finding}" for finding in outcome.findings]
    for what in ("missing", "wrong", "unanswered"):
        found += [f"    {what}: {each}" for each in getattr(verdict, what)[:3]]
    told = [f"    | {each}" for each in [*outcome.log[:4], *outcome.log[4:][-4:]]]
    return "\n".join([*found, *told, f"    log:   {log}", f"    again: {again(outcome, short)}"])


def keep(file: Path, outcome: Outcome) -> None:
    """Write one outcome behind what a file holds, one JSON line each; what is as it always is is left out."""
    file.parent.mkdir(parents=True, exist_ok=True)
    said = {**asdict(outcome), "verdict": _unusual(outcome.verdict, Verdict())}
    usual = {name for name, value in said.items() if not value} | {"first_event"}
    with file.open("a") as lines:
        lines.write(json.dumps({name: value for name, value in said.items() if name not in usual}) + "\n")


def _unusual(verdict: Verdict, usual: Verdict) -> dict[str, object]:
    return {name: value for name, value in asdict(verdict).items() if value != getattr(usual, name)}


def kept(place: Path) -> list[Outcome]:
    """All outcomes that were kept in a folder, or in one file."""
    files = sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
    made = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [Outcome(**(each | {"verdict": Verdict(**each.get("verdict", {}))})) for each in made]


def summary(outcomes: Sequence[Outcome]) -> None:
    """The table by kind, and all together."""
    single = [part for outcome in outcomes for part in _parts(outcome)]
    kinds = sorted({outcome.kind for outcome in single})
    rows = [_row(kind, [o for o in single if o.kind == kind]) for kind in kinds]
    show("faults by kind", HEAD, [*rows, _row("all", single)])
    lossy = sum(outcome.verdict.lost_within_bound for outcome in outcomes)
    print(f"\n  lost by the probabilistic reduction, which may: {lossy:,}")


def _parts(outcome: Outcome) -> list[Outcome]:
    """An outcome of several faults at once as one of each; what was counted is the first one's."""
    first, *others = outcome.kind.split("+")
    failed = outcome.findings or ["a fault at the same time failed"] * (not outcome.ok)
    return [
        replace(outcome, kind=first),
        *(Outcome(kind, outcome.seed, pause_s=outcome.pause_s, findings=failed) for kind in others),
    ]


def _row(kind: str, outcomes: Sequence[Outcome]) -> list[object]:
    pauses = [outcome.pause_s for outcome in outcomes if outcome.pause_s is not None]
    verdicts = [outcome.verdict for outcome in outcomes]
    sums = [sum(getattr(v, name) for v in verdicts) for name in ("publications", "deliveries", "expected", "repeats")]
    bad = [sum(len(getattr(v, name)) for v in verdicts) for name in ("missing", "wrong", "unanswered")]
    worst = [f"{median(pauses):.1f}", f"{max(pauses):.1f}"] if pauses else ["never", "never"]
    promised = f"{KINDS[kind].bound_s:.0f}" if kind in KINDS else ""
    failed = sum(not outcome.ok for outcome in outcomes)
    return [kind, len(outcomes), failed, *sums, *bad, sum(o.restarts for o in outcomes), *worst, promised]


def picture(outcomes: Sequence[Outcome], name: str = "campaign") -> None:
    """The pauses of every kind, failed faults in red, to `benchmarks/out/NAME.png`."""
    outcomes = [part for outcome in outcomes for part in _parts(outcome)]
    kinds = sorted({outcome.kind for outcome in outcomes}, reverse=True)
    figure, axes = pyplot.subplots(figsize=(8, 1.5 + 0.25 * len(kinds)))
    longest = max((outcome.pause_s or 0.0 for outcome in outcomes), default=1.0) or 1.0
    for colour, label, ok in (("tab:blue", "nothing missing or wrong", True), ("tab:red", "failed", False)):
        chosen = [outcome for outcome in outcomes if outcome.ok == ok]
        if chosen:
            xs = [longest * 1.3 if o.pause_s is None else max(o.pause_s, 0.1) for o in chosen]
            axes.scatter(xs, [kinds.index(o.kind) for o in chosen], s=18, color=colour, label=label, alpha=0.7)
    axes.set_yticks(range(len(kinds)), kinds, fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("seconds that a publication waited, at worst (rightmost: for ever)")
    axes.set_title(f"{len(outcomes)} faults", fontsize=9)
    axes.legend(fontsize=7)
    save(figure, name)
