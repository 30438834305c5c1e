"""The long run: random scenarios in the simulator, one after another, until the time is over or something is wrong.

    python -m benchmarks.soak [--minutes M] [--seed S] [--brokers N]      from seed S on, for M minutes
    python -m benchmarks.soak --seed S [--brokers N] --once               the scenario of one seed, again

Each seed is an overlay of 2 to 100 brokers, hosted by 1 to 4 deployments, with several event types, reductions and
configurations, through changes, crashes, replays, lost checkpoints, lost messages and a lost index
(`tests/simulation/`). Deliveries are compared with flooding at rest, after each fence and in the middle of everything.
A failure prints its seed, what was wrong, and the shortest scenario found that still fails; the exit code is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping

from benchmarks.workloads import mixed
from state.filters.evaluate import compile
from state.filters.grammar import parse
from tests.simulation.drill import Failure, run, shortened
from tests.simulation.scenario import Scenario, Size, draw

SHORTEN_S = 300.0
REPORT_S = 30.0


def judge(scenario: Scenario) -> Callable[[str, str, Mapping[str, object]], bool]:
    """Read filters with the product's own evaluator, each once; the tests judge by an oracle of their own."""
    types = scenario.configs()[0].types
    compiled: dict[tuple[str, str], Callable[[Mapping[str, object]], bool]] = {}

    def holds(type_name: str, text: str, event: Mapping[str, object]) -> bool:
        if (type_name, text) not in compiled:
            compiled[type_name, text] = compile(parse(text, types[type_name]), types[type_name])
        return compiled[type_name, text](event)

    return holds


def explain(failure: Failure, brokers: int | None) -> None:
    """Say what failed, how to see it again, and the shortest way to it that is found in a few minutes."""
    scenario = failure.scenario
    print(f"\nFAILED {failure}")
    again = f"--seed {scenario.seed}" + (f" --brokers {brokers}" if brokers else "")
    print(f"again:  python -m benchmarks.soak {again} --once")
    deadline = time.monotonic() + SHORTEN_S
    print(f"shortening for at most {SHORTEN_S:.0f} s ...", flush=True)

    def fails(shorter: Scenario) -> bool:
        if time.monotonic() > deadline:
            return False
        try:
            run(shorter, mixed, judge(shorter))
        except Failure as other:
            return other.kind == failure.kind
        return False

    short = shortened(scenario.with_actions(scenario.actions[: failure.number + 1]), fails)
    print(f"{len(scenario.actions)} actions, {len(short.actions)} are enough; hosted as {short.hosting}")
    for number, text in enumerate(short.variants):
        print(f"--- configuration {number}\n{text}")
    print("--- actions")
    for action in short.actions:
        print(action)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (10)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (the present second)")
    parser.add_argument("--brokers", type=int, default=None, help="all overlays of this size (2 to 100 by seed)")
    parser.add_argument("--once", action="store_true", help="this seed only")
    given = parser.parse_args()
    seed = int(time.time()) if given.seed is None else given.seed
    started = told = time.monotonic()
    total: Counter[str] = Counter()
    while True:
        try:
            scenario = draw(seed, mixed, Size.of(seed, given.brokers))
            total.update(run(scenario, mixed, judge(scenario)).figures)
        except Failure as failure:
            explain(failure, given.brokers)
            return 1
        total["runs"] += 1
        over = given.once or time.monotonic() - started > 60 * given.minutes
        if over or time.monotonic() - told > REPORT_S:
            told = time.monotonic()
            print(
                f"seed {seed}, {told - started:,.0f} s: {total['runs']:,} runs, nothing missing, nothing wrong",
                flush=True,
            )
        if over:
            break
        seed += 1
    width = max(map(len, total))
    for name, n in sorted(total.items()):
        print(f"{name:<{width}} {n:>14,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
