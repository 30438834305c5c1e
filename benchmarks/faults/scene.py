"""What a fault may touch, and the way through one: strike, heal, wait until routing went on, fence, judge."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from dataclasses import dataclass, field

import redis
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.faults.judge import Judge, Verdict
from benchmarks.faults.kind import LOOPS, Fault
from benchmarks.faults.load import Load
from benchmarks.faults.world import Deployment, Job, World
from hilcast import load, wait

TELLING = re.compile(
    r"^(?!\s+at |\s+File )(hilcast: .*|.*(is started again|QUARANTINE|nothing can be delivered|Error:|Exception:|refus"
    r"|damaged|cannot|away|lost \d+ of|generation).*)"
)
"""Lines of the job's log that are worth showing; of those that differ in numbers only the last."""
FAILED = re.compile(r"the (\w+) query (?:stopped|cannot be started): (.*); it is started again in \d+ s")
LOOK_S = 0.25
LOOKS = 3
GRACE_S = 15.0
"""After everything is routed: so long a delivery may still be on its way to where it is read."""


class Broken(Exception):
    """The deployment does not work any more; a fresh one is needed."""


@dataclass
class Outcome:
    """What one fault led to."""

    kind: str
    seed: int
    verdict: Verdict = field(default_factory=Verdict)
    pause_s: float | None = None
    restarts: int = 0
    findings: list[str] = field(default_factory=list)
    """What is not as it should be, apart from the verdict."""
    remarks: list[str] = field(default_factory=list)
    """What else there is to tell."""
    log: list[str] = field(default_factory=list)
    took_s: float = 0.0
    first_event: int = 0
    """The number of the first event that was sent under it."""

    @property
    def ok(self) -> bool:
        v = self.verdict
        return not (v.missing or v.wrong or v.unanswered or self.findings)


class Scene:
    """One deployment under load, and a fault that happens to it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.size, self.seed = world, world.size, seed
        self.rng = random.Random(seed)
        self.deployment: Deployment = world.deployment(seed)
        self.load = Load(self.deployment, seed)
        self.judge = Judge(self.deployment, self.load)
        self.extra_jobs: list[Job] = []
        self.notes: dict[str, object] = {}
        """What a fault remembers between its steps."""
        self.outcome = Outcome("", 0)
        self.round: list[Outcome] = []
        """The faults that were not judged yet."""
        self.loops = LOOPS
        self._healed_at = 0
        """Where the job's log was when the last fault was undone."""

    @property
    def job(self) -> Job:
        return self.deployment.job

    @property
    def redis(self) -> redis.Redis:
        return self.world.redis

    @property
    def admin(self) -> AdminClient:
        return self.world.admin

    # ── from begin to end ───────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Start the job and the load; everything is in force when this returns."""
        self.job.start()
        self.until(lambda: self.job.ready, "the job to be ready")
        self.load.cast()
        self.in_force()
        self.load.close(lambda sent: False)
        self.load.start()
        self.routing_since(time.time())

    def end(self) -> None:
        """Stop everything of this deployment."""
        self.load.stop()
        for job in self.extra_jobs:
            job.end()
        self.judge.close()
        self.world.retire(self.deployment)

    def suffer(self, fault: Fault, seed: int) -> Outcome:
        """Let one fault happen and wait until routing went on; what came of it is judged by `judged`."""
        outcome = self.outcome = Outcome(fault.name, seed, first_event=len(self.load.events))
        self.round.append(outcome)
        self.rng, self.notes, self.loops = random.Random(f"{fault.name} {seed}"), {}, fault.loops
        began, told = time.monotonic(), self.job.log.stat().st_size
        try:
            self.load.changing = True
            self.load.some(self.size.burst // 2)
            fault.prepare(self)
            struck_s = time.time()
            fault.strike(self)
            self.load.some(self.size.burst // 2)
            fault.heal(self)
            self._healed_at = self.job.log.stat().st_size
            self.routing_since(time.time(), fault)
            outcome.pause_s = self._worst(struck_s)
            outcome.findings += fault.after(self)
        except Broken as broken:
            outcome.findings.append(str(broken))
            self._left()
        finally:
            outcome.took_s = time.monotonic() - began
            self._quote(outcome, told)
        return outcome

    def judged(self, verify: bool) -> list[Outcome]:
        """Judge the faults since the last time, and return them."""
        began, told = time.monotonic(), self.job.log.stat().st_size
        round, last = self.round, self.round[-1]
        try:
            self.fence()
            if verify:
                self._verify()
        except Broken as broken:
            last.findings.append(str(broken))
            self._left()
        finally:
            last.took_s += time.monotonic() - began
            self._quote(last, told)
            self.round = []
        return round

    def _quote(self, outcome: Outcome, told: int) -> None:
        """Keep what the job said since, if the fault failed."""
        if not outcome.ok:
            lines = [line[:300] for line in self.job.said(told).splitlines() if TELLING.search(line)]
            outcome.log += list({re.sub(r"\d+", "#", line): line for line in lines}.values())

    # ── waiting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def until(self, done, what: str, timeout_s: float | None = None) -> None:
        """Wait for something; for ever is `Broken`, and so is a query that fails again and again."""
        deadline = time.monotonic() + (timeout_s or self.size.patience_s)
        while not done():
            failures = FAILED.findall(self.job.said(self._healed_at))
            if len(failures) >= self.loops:
                name, reason = failures[-1]
                raise Broken(f"wedged, the {name} query failed {len(failures)} times: …{reason[-300:]}")
            if time.monotonic() > deadline:
                raise Broken(f"waited {timeout_s or self.size.patience_s:.0f} s in vain for {what}")
            time.sleep(LOOK_S)

    def routing_since(self, since_s: float, fault: Fault | None = None) -> None:
        """Return once probes sent after this moment are delivered; a job that ended is started again, and noted."""

        def went_on() -> bool:
            self.revive(fault)
            return self._probed(since_s)

        self.until(went_on, "a probe to be delivered")

    def routing_by(self, other: Job) -> None:
        """Return once probes are delivered while another job than the scene's own does the work."""
        since_s = time.time()
        self.until(lambda: self._probed(since_s), f"a probe to be delivered by {other.path.parent.name}")

    def _probed(self, since_s: float) -> bool:
        try:
            self.judge.look()
        except (KafkaException, TimeoutError):
            return False
        fresh = {self.load.events[n].type for n in self.judge.probes if self.load.events[n].sent_s >= since_s}
        return len(fresh) == 2

    def revive(self, fault: Fault | None = None) -> None:
        """Start the job again if it ended, as a supervisor would."""
        if self.job.alive:
            return
        code = self.job.process.poll() if self.job.process else None
        last = (self.job.said().strip().splitlines() or ["nothing"])[-1]
        self.outcome.restarts += 1
        if fault is None or not fault.ends:
            self.outcome.findings.append(f"the job ended by itself with {code}: {last[:300]}")
        self.job.end()
        self.job.start()

    def restart(self, **environment: str) -> None:
        """Start the job that was ended on purpose; of several faults at once the first one does."""
        if not self.job.alive:
            self.job.start(**environment)

    def _worst(self, struck_s: float) -> float:
        """The longest that a probe sent around or after the strike was on its way."""
        events = self.load.events
        return max(
            (at_s - events[n].sent_s for n, at_s in self.judge.probes.items() if events[n].sent_s > struck_s - 1.0),
            default=0.0,
        )

    # ── judging ─────────────────────────────────────────────────────────────────────────────────────────────────

    def fence(self) -> None:
        """Let everything come into force, send some events while nothing changes, and judge all there is."""
        self.load.changing = False
        self._flushed()
        self.judge.look()
        over = {id(s.lease) for s in self.load.subscriptions if s.lease is not None and self.judge.is_over(s.lease)}
        self.in_force()
        self.load.close(lambda sent: id(sent) in over)
        self.load.some(self.size.burst // 4)
        time.sleep(self.size.settle_s)
        window = self.load.close(lambda sent: id(sent) in over)

        def routed() -> bool:
            self.judge.look()
            return self.judge.routed(window) == 0

        try:
            self.until(routed, "everything to be routed")
        except Broken as broken:
            self.outcome.findings.append(f"{broken}: {self.judge.routed(window)} events are left")
        deadline, looks = time.monotonic() + GRACE_S, 0
        while True:
            verdicts = self.judge.judge(window, [outcome.first_event for outcome in self.round])
            # on a busy machine judging alone may take that long: what was written meanwhile is looked at all the same
            late = time.monotonic() > deadline and looks >= LOOKS
            if late or not any(verdict.missing or verdict.unanswered for verdict in verdicts):
                break
            time.sleep(1.0)
            self.judge.look(whole=True)
            looks += 1
        self.judge.accept(verdicts)
        for outcome, verdict in zip(self.round, verdicts, strict=True):
            outcome.verdict.add(verdict)

    def _flushed(self) -> None:
        """Everything sent so far is in Kafka."""
        if not self.load.flush(self.size.patience_s):
            raise Broken(f"Kafka did not take everything: {self.load.lost[:3]}")

    def in_force(self) -> None:
        """`hilcast wait`, by the client library."""
        self._flushed()
        config, ended = load(self.deployment.path), list[Exception | None]()

        def waiting() -> None:
            try:
                wait(config, self.size.patience_s)
                ended.append(None)
            except Exception as error:
                ended.append(error)

        # a daemon: who ends the campaign does not wait for it
        threading.Thread(target=waiting, name="wait", daemon=True).start()
        self.until(lambda: ended, "`hilcast wait` to return", self.size.patience_s + 120.0)
        if ended[0] is not None:
            raise Broken(f"hilcast wait: {ended[0]}")

    def _left(self) -> None:
        """Note what a deployment that broke leaves unanswered; nothing more can be said of it."""
        try:
            self.judge.look()
        except (KafkaException, TimeoutError):
            return
        self.outcome.verdict.unanswered += self.judge.unanswered()

    def _verify(self) -> None:
        """Ask the product's own judge as well."""
        answer = self.deployment.asked("verify", "--json").communicate(timeout=900.0)[0]
        try:
            told = json.JSONDecoder().raw_decode(answer, answer.index("{"))[0]
        except ValueError:
            self.outcome.findings.append(f"hilcast verify: {answer.strip()[-300:]}")
            return
        if not told["ok"]:
            counts = {k: v for k, v in told.items() if k in ("missing", "wrong", "unanswered", "missing_ids") and v}
            self.outcome.findings.append(f"hilcast verify: {counts} {told['findings'][:2]}")

    # ── looking ─────────────────────────────────────────────────────────────────────────────────────────────────

    def end_of(self, topic: str) -> int:
        """The offset after the last record of partition 0 of a topic under the prefix."""
        place = TopicPartition(f"{self.deployment.prefix}.{topic}", 0)
        return int(self.admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=10.0)[place].result().offset)

    def holds(self, topic: str, records: int) -> bool:
        """Whether a topic has had so many records."""
        place = TopicPartition(topic, 0)
        try:
            found = self.admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=10.0)[place].result()
        except KafkaException:
            return False
        return int(found.offset) >= records

    def letters(self, code: str) -> int:
        """How many dead letters of this code there are."""
        self.judge.look()
        return sum(1 for found in self.judge.letters.values() if found == code)
