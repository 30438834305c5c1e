"""The fault campaign: real Kafka, Redis and Spark under constant load, seeded faults, an oracle after each.

    python -m benchmarks.campaign [--faults N] [--seed S]     N faults from a schedule that S draws
    python -m benchmarks.campaign --only KIND --seed S        one fault again, alone
    python -m benchmarks.campaign --among A,B+C               draw from these; B and C happen at once
    python -m benchmarks.campaign --kinds                     what there is, and what this machine cannot do

All reductions, advertisements, groups, sinks and leases are in use while subscriptions change. After each fault it is
waited until a probe is delivered again, then `hilcast wait`, then everything since the last time is compared with
`tests/oracle.py` and judged by `hilcast verify`. A fault that fails is told with its seed and the lines of the job's
log; then a fresh deployment takes over. Exit code 1 if any failed. The parts are in `benchmarks/faults/`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.faults import (  # noqa: F401 kinds
    checkpoints,
    destinations,
    drivers,
    inboxes,
    inputs,
    outages,
    points,
    processes,
)
from benchmarks.faults.figures import explain, line, picture, summary
from benchmarks.faults.kind import KINDS, fault_of
from benchmarks.faults.scene import Broken, Outcome, Scene
from benchmarks.faults.schedule import schedule
from benchmarks.faults.world import FULL, SHORT, Size, World

LEFT_OUT = {
    "kafka-leader-lost": "local services are one Kafka node: with three, kill the leader",
    "clock-of-the-jvm": "libfaketime is not part of the set-up; the driver's own clock is shifted instead (clock-*)",
}
"""What the issue names and nothing here can do, with the reason."""


def possible(names: Sequence[str]) -> list[str]:
    """The kinds among these that this machine can do; the others are said, loudly."""
    why = {name: [r for part in name.split("+") if (r := KINDS[part].impossible())] for name in names}
    left = {**LEFT_OUT, **{name: "; ".join(reasons) for name, reasons in why.items() if reasons}}
    for name, reason in sorted(left.items()):
        print(f"LEFT OUT {name}: {reason}", file=sys.stderr)
    return [name for name in names if name not in left]


def campaign(plan: Sequence[tuple[str, int]], size: Size, folder: Path, short: bool = False) -> list[Outcome]:
    """Let these faults happen, one after another; a deployment that fails one is replaced by a fresh one."""
    outcomes: list[Outcome] = []
    with World(folder, size) as world:
        scene, lived = None, 0
        try:
            for number, (kind, seed) in enumerate(plan, 1):
                if scene is None:
                    scene, lived = Scene(world, seed), 0
                    scene.begin()
                outcome = scene.suffer(fault_of(kind), seed, last=number == len(plan) or lived + 1 >= size.leg)
                outcomes.append(outcome)
                print(line(number, len(plan), outcome), flush=True)
                if not outcome.ok:
                    print(explain(outcome, short, str(scene.job.log)), flush=True)
                lived += 1
                if not outcome.ok or lived >= size.leg:
                    scene.end()
                    scene = None
        except Broken as broken:
            # a fresh deployment that does not work is no fault of ours: nothing after it would mean anything
            print(f"a fresh deployment does not come up: {broken}", file=sys.stderr, flush=True)
            outcomes.append(Outcome("begin", plan[len(outcomes)][1], findings=[str(broken)]))
        finally:
            if scene is not None:
                scene.end()
    return outcomes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=400, help="how many (400)")
    parser.add_argument("--seed", type=int, default=None, help="of the schedule (the present second)")
    parser.add_argument("--only", metavar="KIND", help="one fault of this kind, with this very seed")
    parser.add_argument("--among", metavar="KIND,KIND", help="draw from these kinds only; KIND+KIND: both at once")
    parser.add_argument("--short", action="store_true", help="short pauses, few leases, a small load")
    parser.add_argument("--kinds", action="store_true", help="list the kinds and leave")
    parser.add_argument("--patience", type=float, help="seconds after which a pause counts as for ever")
    parser.add_argument("--data", type=Path, help="where logs go (a temporary folder, kept if something failed)")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that everything is stopped in order
    chosen = given.among.split(",") if given.among else list(KINDS)
    unknown = {*(given.only or chosen[0]).split("+"), *(part for name in chosen for part in name.split("+"))} - set(
        KINDS
    )
    if unknown:
        print(f"no such kind: {', '.join(sorted(unknown))}; --kinds lists them", file=sys.stderr)
        return 2
    if given.kinds:
        for name, fault in sorted(KINDS.items()):
            print(f"{name:<28} {fault.expects}" + (f" (NOT HERE: {why})" if (why := fault.impossible()) else ""))
        return 0
    size = SHORT if given.short else FULL
    if given.patience:
        size = replace(size, patience_s=given.patience)
    seed = int(time.time()) if given.seed is None else given.seed
    plan = [(given.only, seed)] if given.only else list(schedule(possible(chosen), given.faults, seed))
    folder = given.data or Path(tempfile.mkdtemp(prefix="campaign-"))
    print(f"{len(plan)} faults, seed {seed}, logs in {folder}", flush=True)
    began = time.monotonic()
    outcomes = campaign(plan, size, folder.absolute(), given.short)
    summary(outcomes)
    picture(outcomes)
    failed = [outcome for outcome in outcomes if not outcome.ok]
    single = sum(len(outcome.kind.split("+")) for outcome in outcomes)
    print(f"\n  {single} faults, {len(failed)} failed, {time.monotonic() - began:,.0f} s, seed {seed}")
    if not failed and given.data is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
