"""The fault campaign: real Kafka, Redis and Spark under constant load, seeded faults, an oracle after each.

    python -m benchmarks.campaign [--faults N] [--seed S]     N faults from a schedule that S draws
    python -m benchmarks.campaign --only KIND --seed S        one fault again, alone; A,B: one after another
    python -m benchmarks.campaign --among A,B+C               draw from these; B and C happen at once
    python -m benchmarks.campaign --kinds                     what there is, and what this machine cannot do
    python -m benchmarks.campaign ... --append FOLDER         a piece of a larger one: its outcomes are kept there
    python -m benchmarks.campaign --report PLACE              table and picture of the pieces in a folder or file

All reductions, advertisements, groups, sinks and leases are in use while subscriptions change. After each fault it is
waited until a probe is delivered again; after every `--together` of them `hilcast wait`, then everything since the last
time is compared with `tests/oracle.py`; before a deployment is given up `hilcast verify` judges all of it. A fault that
fails is told with its seed and the lines of the job's log; then a fresh deployment takes over. Exit code 1 if any
failed. The parts are in `benchmarks/faults/`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.faults import (  # noqa: F401 kinds
    checkpoints,
    destinations,
    drivers,
    inboxes,
    inputs,
    one_by_one,
    outages,
    points,
    processes,
)
from benchmarks.faults.figures import explain, keep, kept, line, picture, summary
from benchmarks.faults.kind import KINDS, fault_of
from benchmarks.faults.scene import Broken, Outcome, Scene
from benchmarks.faults.schedule import Drawn, rounds, schedule
from benchmarks.faults.world import FULL, SHORT, Size, World

CHEAP = 3
"""A kind that does not start the job anew is drawn so often for each time that a dear one is."""
LEFT_OUT = {
    "clock-of-the-jvm": "libfaketime is not part of the set-up; the driver's own clock is shifted instead (clock-*)",
}
"""What the issue names and nothing here can do, with the reason."""


def possible(names: Sequence[str], nodes: int) -> list[str]:
    """The kinds among these that this machine can do, on so many nodes of Kafka; the others are said, loudly."""
    why = {name: [r for part in name.split("+") if (r := KINDS[part].impossible())] for name in names}
    for name in names:
        why[name] += ["needs --nodes 3"] if fault_of(name).nodes > nodes else []
    left = {**LEFT_OUT, **{name: "; ".join(reasons) for name, reasons in why.items() if reasons}}
    for name, reason in sorted(left.items()):
        print(f"LEFT OUT {name}: {reason}", file=sys.stderr)
    return [name for name in names if name not in left]


def campaign(
    plan: Sequence[Sequence[Drawn]],
    size: Size,
    folder: Path,
    told: Callable[[Outcome, str], None],
    ends_s: float = float("inf"),
) -> list[Outcome]:
    """Let these faults happen, round by round; a deployment that fails one is replaced by a fresh one.

    `told` is given every outcome as soon as it is judged, with the place of the job's log. Faults of a round in which
    a later one broke the deployment were not judged: they are left out, and that is said. No fault begins after
    `ends_s` on the monotonic clock; those that happened are judged all the same.
    """
    outcomes: list[Outcome] = []
    with World(folder, size) as world:
        scene, lived = None, 0
        try:
            for number, drawn in enumerate(plan, 1):
                if time.monotonic() > ends_s:
                    print(f"the time is over; {len(plan) - number + 1} rounds were not begun", flush=True)
                    break
                if scene is None:
                    scene, lived = Scene(world, drawn[0][1]), 0
                    scene.begin()
                judged = through(scene, drawn, number == len(plan) or lived + len(drawn) >= size.leg, ends_s)
                lived += len(drawn)
                outcomes += judged
                for outcome in judged:
                    told(outcome, str(scene.job.log))
                if lived >= size.leg or not all(outcome.ok for outcome in judged):
                    scene.end()
                    scene = None
        except Broken as broken:
            # a fresh deployment that does not work is no fault of ours: nothing after it would mean anything
            print(f"a fresh deployment does not come up: {broken}", file=sys.stderr, flush=True)
            outcomes.append(Outcome("begin", drawn[0][1], findings=[str(broken)]))
        finally:
            if scene is not None:
                scene.end()
    return outcomes


def through(scene: Scene, drawn: Sequence[Drawn], last: bool, ends_s: float = float("inf")) -> list[Outcome]:
    """One round: each fault until routing went on, then the judgement of all of them."""
    for kind, seed in drawn:
        if scene.round and time.monotonic() > ends_s:
            print(f"the time is over; not begun: {kind} and what comes behind it", flush=True)
            last = True
            break
        outcome = scene.suffer(fault_of(kind), seed)
        print(f"  went on after {outcome.took_s:.0f} s: {kind}", flush=True)
        if not outcome.ok:
            unjudged = [each.kind for each in scene.round if each is not outcome]
            if unjudged:
                print(f"not judged, for the next one failed: {', '.join(unjudged)}", flush=True)
            scene.round = []
            return [outcome]
    return scene.judged(verify=scene.size.verify or last)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=400, help="how many (400)")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule (the present second)")
    parser.add_argument("--only", metavar="KIND,KIND", help="these faults one after another, the first with this seed")
    parser.add_argument("--among", metavar="KIND,KIND", help="draw from these kinds only; KIND+KIND: both at once")
    parser.add_argument("--together", type=int, help="faults that are judged together (1; of --only all)")
    parser.add_argument("--even", action="store_true", help="draw dear kinds as often as cheap ones")
    parser.add_argument("--short", action="store_true", help="short pauses, few leases, a small load")
    parser.add_argument("--burst", type=int, help="events sent at once around each fault")
    parser.add_argument("--leg", type=int, help="faults that one deployment lives through")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of Kafka (1)")
    parser.add_argument("--kinds", action="store_true", help="list the kinds and leave")
    parser.add_argument("--patience", type=float, help="seconds after which a pause counts as for ever")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no fault after so many (no limit)")
    parser.add_argument("--data", type=Path, help="where logs go (a temporary folder, kept if something failed)")
    parser.add_argument("--append", type=Path, metavar="FOLDER", help="keep the outcomes there, a file for each run")
    parser.add_argument("--report", type=Path, metavar="PLACE", help="show what pieces kept in a folder or file")
    return parser.parse_args()


def sized(given: argparse.Namespace) -> Size:
    """How much of everything was asked for."""
    size = SHORT if given.short else FULL
    asked = {"patience_s": given.patience, "burst": given.burst, "leg": given.leg, "nodes": given.nodes}
    size = replace(size, **{name: value for name, value in asked.items() if value is not None})
    return replace(size, verify=size.verify and given.together in (None, 1))


def drawn_by(given: argparse.Namespace, seed: int) -> list[list[Drawn]]:
    """The faults that were asked for, in rounds."""
    if given.only:
        return rounds([(kind, seed + i) for i, kind in enumerate(given.only.split(","))], given.together or 10**6)
    chosen = possible(given.among.split(",") if given.among else list(KINDS), given.nodes)
    often = {name: 1 if given.even or given.among or fault_of(name).dear else CHEAP for name in chosen}
    return rounds(list(schedule(often, given.faults, seed)), given.together or 1)


def show(outcomes: Sequence[Outcome]) -> int:
    """The table and the picture; 1 if a fault failed."""
    summary(outcomes)
    picture(outcomes)
    failed = sum(not outcome.ok for outcome in outcomes)
    single = sum(len(outcome.kind.split("+")) for outcome in outcomes)
    print(f"\n  {single} faults, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that everything is stopped in order
    named = ",".join(filter(None, (given.only, given.among))).replace("+", ",").split(",")
    if unknown := {name for name in named if name} - set(KINDS):
        print(f"no such kind: {', '.join(sorted(unknown))}; --kinds lists them", file=sys.stderr)
        return 2
    if given.kinds:
        for name, fault in sorted(KINDS.items()):
            print(f"{name:<28} {fault.expects}" + (f" (NOT HERE: {why})" if (why := fault.impossible()) else ""))
        return 0
    if given.report:
        return show(kept(given.report))
    seed = int(time.time()) if given.seed is None else given.seed
    plan = drawn_by(given, seed)
    faults = sum(map(len, plan))
    folder = given.data or Path(tempfile.mkdtemp(prefix="campaign-"))
    print(f"{faults} faults, seed {seed}, logs in {folder}", flush=True)
    count = itertools.count(1)

    def told(outcome: Outcome, log: str) -> None:
        print(line(next(count), faults, outcome), flush=True)
        if not outcome.ok:
            print(explain(outcome, given.short, log), flush=True)
        if given.append:
            keep(given.append / f"{seed}-{os.getpid()}.jsonl", outcome)

    began = time.monotonic()
    outcomes = campaign(plan, sized(given), folder.absolute(), told, began + 60 * given.minutes)
    code = show(outcomes)
    print(f"  {time.monotonic() - began:,.0f} s, seed {seed}")
    if not code and given.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
