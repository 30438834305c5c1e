"""One index for the workers of a host: who builds it, who waits, who dies, and what is left behind."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import random
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest

from state.keys import Key
from state.redis_index import Holding
from streaming import host_files, host_index
from streaming.host_index import BUILD, PARENT, USERS, HostIndex, home_in, leave, sweep
from streaming.index_cache import BUSY
from tests.streaming.shared_world import FOLDED, World, says, should, stamp_of


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def folder_of(cache):
    return cache._held.host.folder


def stored(folder):
    return {name: (folder / name).stat().st_size for name in os.listdir(folder)}


def named(cache):
    """What the manifest of a worker's host names."""
    host = cache._held.host
    return {name for place in host.names for name in host._named(place)}


def test_one_worker_loads_and_all_route_by_it(world):
    """The second worker loads nothing from Redis, and says the same; what changes is loaded by one of them."""
    first, second = world.worker(), world.worker()
    assert first._refresh() == ""
    assert sum(map(len, world.loads)) == len(world.keys)
    assert second._refresh() == ""
    assert sum(map(len, world.loads)) == len(world.keys)
    assert says(first) == says(second) == should(world.config, first._held._parts)
    for builder, reader in ((second, first), (first, second)):
        world.loads.clear()
        world.change(world.keys[3])
        assert builder._refresh() == reader._refresh() == ""
        assert world.loads == [[world.keys[3]]]
        assert says(builder) == says(reader) == should(world.config, reader._held._parts)
        assert reader._held.snapshot.epoch == builder._held.snapshot.epoch == f"1.{max(world.batches().values())}"


def test_a_worker_waits_for_who_builds_and_goes_by_nothing_old(world):
    """While another has the lock, a worker with an older index than the vector says why it waits; it is not served by
    what is there before that is new enough.
    """
    first, second = world.worker(), world.worker()
    assert first._refresh() == second._refresh() == ""
    world.change(world.keys[0])
    with first._held.host.building() as mine:
        assert mine
        assert second._refresh() == BUSY
    before = second._held.snapshot
    assert before is not None, "with stale = route it may go on"
    assert first._refresh() == ""
    assert second._refresh() == ""
    assert second._held.snapshot is not before
    assert says(second) == should(world.config, second._held._parts)


def test_who_has_looked_earlier_takes_what_is_newer(world):
    """A host that is ahead of a worker's look is not taken back."""
    first, second = world.worker(), world.worker()
    assert first._refresh() == ""
    old = world.look(1)
    world.change(*world.keys)
    assert first._refresh() == ""
    world.loads.clear()
    world.look = lambda generation, known=None: old
    second.redis.look = world.look
    assert second._refresh() == ""
    assert not world.loads
    assert says(second) == says(first)


def test_a_part_that_is_lost_holds_up_what_it_belongs_to(world):
    """Nothing is used while a part is missing; what was built until then is not built again."""
    cache = world.worker()
    world.lost.add(world.keys[-1])
    assert "lost or damaged" in cache._refresh()
    assert cache._held is None
    world.lost.clear()
    world.loads.clear()
    assert cache._refresh() == ""
    assert {key.broker for keys in world.loads for key in keys} == {world.keys[-1].broker}
    assert says(cache) == should(world.config, cache._held._parts)


def test_who_builds_next_follows_from_what_the_files_hold(world):
    """A worker that never loaded anything takes in deltas from the states that stand in the files, and no whole part;
    where no delta leads on the part is loaded whole. Everybody then says the same.
    """
    assert world.worker()._refresh() == ""
    seen, wholes = [], 0
    for batch in range(1, 2 * FOLDED + 2):
        builder, reader = world.worker(), world.worker()
        world.change(*world.keys[:2])
        world.led.clear()
        assert builder._refresh() == reader._refresh() == ""
        seen += world.led
        wholes += 2 - len(world.led)
        assert all(holding.stamp == stamp_of(key, batch - 1) for key, holding in world.led)
        host = builder._held.host
        for place in host.names:
            junction = host.opened(world.config, builder._held.grids["t"], place)
            here = {Key(*place, part): one for part, one in host.parts(place).items()}
            assert all(junction.stamp(key) == holding.stamp for key, (_, holding) in here.items())
        assert says(builder) == says(reader) == should(world.config, builder._held._parts)
    assert wholes == 4
    assert len(seen) == 4 * FOLDED - 2


def test_what_ends_behind_the_vector_counts_as_lost(world):
    """A chain of deltas without its last one leads to something older than the vector says: it is asked for again."""
    cache, asked = world.worker(), []
    cache._ask = asked.append
    assert cache._refresh() == ""
    before = cache._held.host.names
    world.change(world.keys[1])
    world.cut.add(world.keys[1])
    assert "lost or damaged" in cache._refresh()
    assert asked == [world.keys[1]]
    assert cache._held.host.names == before
    world.cut.clear()
    assert cache._refresh() == ""
    assert says(cache) == should(world.config, cache._held._parts)
    world.cut.add(world.keys[1])
    another = world.worker()
    assert another._refresh() == "", "this host has it"
    another.close()
    cache.close()
    fresh = world.worker()
    assert "lost or damaged" in fresh._refresh(), "another host has not"


def test_deltas_are_taken_in_only_by_what_they_were_followed_from(world):
    """Where the files hold another state of a part than they say, nothing is built of it, and all is built anew."""
    cache = world.worker()
    assert cache._refresh() == ""
    key, host = world.keys[0], cache._held.host
    place = key.broker, key.type
    described = host._described[place]
    wrong = {**described.parts, key.part: ("1.0", Holding(stamp_of(key, 1), 1))}
    with host.building():
        host.put(place, host.opened(world.config, cache._held.grids["t"], place), wrong)
    world.change(key)
    with pytest.raises(AssertionError, match="another index than is held"):
        cache._refresh()
    host.refresh()
    assert host.names == {}
    assert cache._refresh() == ""
    assert says(cache) == should(world.config, cache._held._parts)


def test_signed_parts_that_were_put_back_are_not_taken(world):
    """With a signing key, a vector and a part that are older than what the host has are refused, as by one worker."""
    cache = world.worker()
    cache.keys = type("Keys", (), {"current": lambda self: object()})()
    before = world.batches()
    world.change(world.keys[2])
    assert cache._refresh() == ""
    world.write(before)
    assert "not genuine" in cache._refresh()
    world.change(*world.keys)
    world.change(*world.keys)
    assert cache._refresh() == ""
    assert says(cache) == should(world.config, cache._held._parts)


def test_old_epochs_go_and_nothing_is_left(world):
    """After many changes there are only the files that the manifest names, not many more than at first."""
    first, second = world.worker(), world.worker()
    assert first._refresh() == second._refresh() == ""
    chance, most = random.Random(1), 0
    for _ in range(60):
        world.change(*chance.sample(world.keys, chance.randint(1, 3)))
        for cache in chance.sample([first, second], 2):
            assert cache._refresh() == ""
        found = stored(folder_of(first))
        most = max(most, len(found))
        ours = {name for name in found if not name.startswith(PARENT)} - {BUILD, USERS, host_index.MANIFEST}
        assert ours == named(first)
    assert most < 150
    assert says(first) == says(second) == should(world.config, first._held._parts)
    first._held._junctions["b1", "t"].check()


def test_a_small_change_writes_little(world, monkeypatch):
    """One part that changes costs a tenth of the bytes of all, and no junction that it does not concern."""
    monkeypatch.setattr("tests.streaming.shared_world.made.__defaults__", (400,))
    cache = world.worker()
    assert cache._refresh() == ""
    host = cache._held.host
    whole, names = host.files.written, dict(host.names)
    world.change(world.keys[0])
    assert cache._refresh() == ""
    before = host.files.written
    world.change(world.keys[0])
    assert cache._refresh() == ""
    assert host.files.written - before < whole / 5
    assert {place for place in names if names[place] != host.names[place]} == {("b1", "t")}


@pytest.mark.parametrize("room", [0, 100, 5_000, 20_000])
def test_without_room_a_worker_has_an_index_of_its_own(world, room, monkeypatch):
    """A full disk, at whatever file: the worker routes all the same, says so once, and gives back the room."""
    first, second = world.worker(), world.worker()
    original = os.pwrite

    def full(file, content, at):
        nonlocal room
        room -= len(content)
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(file, content, at)

    monkeypatch.setattr(host_files.os, "pwrite", full)
    for cache in (first, second):
        assert cache._refresh() == ""
        assert cache._held.alone
        assert cache.counted == [{"own_index": 1}]
        assert says(cache) == should(world.config, cache._held._parts)
    world.change(world.keys[1])
    assert first._refresh() == ""
    assert first.counted == [{"own_index": 1}], "once"
    assert says(first) == should(world.config, first._held._parts)
    assert not list(home_in(world.config.settings.index_folder).glob("*/*.*.*")), "no array is left"


def test_folders_are_private(world, tmp_path):
    """Nobody else can look into a folder or a file; one that others can use is not used."""
    cache = world.worker()
    assert cache._refresh() == ""
    folder = folder_of(cache)
    for path in (folder.parent, folder):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert all(stat.S_IMODE((folder / name).stat().st_mode) == 0o600 for name in os.listdir(folder))
    cache.close()
    folder.parent.chmod(0o755)
    other = world.worker()
    assert other._refresh() == ""
    assert other._held.alone


def test_files_that_somebody_removes_are_built_again(world):
    """A cleaner of temporary files takes one away: nobody waits for it for ever."""
    first = world.worker()
    assert first._refresh() == ""
    for name in sorted(named(first))[:2]:
        (folder_of(first) / name).unlink()
    assert says(first) == should(world.config, first._held._parts), "what is mapped stays"
    second = world.worker()
    why = [second._refresh() for _ in range(3)]
    assert why[-1] == "", why
    assert says(second) == should(world.config, second._held._parts)
    world.change(world.keys[0])
    assert first._refresh() == ""
    assert says(first) == should(world.config, first._held._parts)


@pytest.mark.parametrize("what", ["run", "lineage"])
def test_another_redis_is_another_folder(world, what):
    """What was built from one history is not used for another, be its versions the same; the old folder goes."""
    cache = world.worker()
    assert cache._refresh() == ""
    old = folder_of(cache)
    setattr(world, what, "other")
    world.change(*world.keys)
    assert cache._refresh() == ""
    assert folder_of(cache) != old
    assert not old.exists()
    assert says(cache) == should(world.config, cache._held._parts)


def test_the_folder_of_an_old_generation_goes_with_its_last_worker(world):
    """Each worker takes up the new generation when it looks; the files of the old one stay as long as one has not."""
    first, second = world.worker(), world.worker()
    assert first._refresh() == second._refresh() == ""
    old = folder_of(first)
    world.generation = 2
    assert first._refresh() == ""
    assert old.exists()
    assert second._refresh() == ""
    assert not old.exists()
    assert folder_of(first) == folder_of(second)
    assert says(first) == says(second) == should(world.config, first._held._parts)


def enter_and(end, folder):
    """What a worker does, in a process of its own."""
    HostIndex(folder)
    if end == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def test_folders_that_nobody_uses_are_removed(tmp_path):
    """One whose workers and parents are dead goes; one with a worker, or a living parent, stays until that ends."""
    home, context = tmp_path / "home", multiprocessing.get_context("fork")
    HostIndex(home / "mine")
    inside = context.Process(target=enter_and, args=("stay", home / "inside"))
    inside.start()
    while not list(home.glob(f"inside/{PARENT}*")):
        time.sleep(0.01)
    (home / "dead").mkdir()
    (home / "dead" / f"{PARENT}{os.getpid()}.1").touch()  # another process had our number once
    for name in ("mine", "inside"):
        next((home / name).glob(f"{PARENT}*")).unlink()
    sweep(home)
    assert {path.name for path in home.iterdir()} == {"mine", "inside"}
    os.kill(inside.pid, signal.SIGKILL)
    inside.join()
    sweep(home)
    assert {path.name for path in home.iterdir()} == {"mine"}
    dead = context.Process(target=enter_and, args=("die", home / "kept"))
    dead.start()
    dead.join()
    sweep(home)
    assert (home / "kept").exists(), "its parent, this process, lives"
    sweep(home, gone=os.getpid())
    assert not (home / "kept").exists()


def end_as_a_daemon(folder):
    workers = [multiprocessing.get_context("fork").Process(target=enter_and, args=("stay", folder)) for _ in range(2)]
    for worker in workers:
        worker.start()
    while len(list(folder.glob(f"{PARENT}*"))) < 1:
        time.sleep(0.01)
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    for worker in workers:
        worker.join()
    leave(str(folder.parents[1]))


def test_a_daemon_that_ends_leaves_nothing(tmp_path):
    """Who started the workers removes what they used."""
    folder = home_in(str(tmp_path)) / "job"
    daemon = multiprocessing.get_context("fork").Process(target=end_as_a_daemon, args=(folder,))
    daemon.start()
    daemon.join()
    assert daemon.exitcode == 0
    assert not folder.exists()


# ── workers that are killed ─────────────────────────────────────────────────────────────────────────────────────────


def work(path: Path, seed: int, tasks: int, deadly: float) -> None:
    """A worker for some tasks: each checks what it goes by; any write to the files may be its last."""
    chance, original = random.Random(seed), os.pwrite

    def write(file, content, at):
        if chance.random() < deadly:
            original(file, content[: len(content) // 2], at)
            os.kill(os.getpid(), signal.SIGKILL)
        return original(file, content, at)

    host_files.os.pwrite = write
    world = World(path)
    cache = world.worker()
    for _ in range(tasks):
        asked = world.batches()
        while cache._refresh():
            time.sleep(0.002)
        held = cache._held._parts
        assert all(int(held[key][0].split(".")[1]) >= asked[str(key)] for key in world.keys), "older than the vector"
        assert says(cache) == should(world.config, held), "not what the parts say"
        time.sleep(chance.random() * 0.01)


def test_workers_that_are_killed_leave_nothing_half_built(tmp_path):
    """Workers die while they build, at any write, and while they read, at any moment; whatever a worker goes by is
    what the parts say, as new as the vector was, and in the end nothing is left over.
    """
    world, chance, context = World(tmp_path), random.Random(7), multiprocessing.get_context("fork")
    assert world.worker()._refresh() == ""  # kernels are compiled before the first is forked
    running, killed, started = [], 0, 0
    while killed < 25 or started < 40:
        running = [process for process in running if process.is_alive() or ended(process)]
        killed += sum(process.exitcode == -signal.SIGKILL for process in running if not process.is_alive())
        running = [process for process in running if process.is_alive()]
        while len(running) < 3:
            running.append(context.Process(target=work, args=(tmp_path, started, 12, 0.01)))
            running[-1].start()
            started += 1
        world.change(*chance.sample(world.keys, chance.randint(1, 4)))
        time.sleep(0.03)
        if chance.random() < 0.1:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(running).pid, signal.SIGKILL)
    for process in running:
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    last = world.worker()
    assert last._refresh() == ""
    world.change(world.keys[0])
    assert last._refresh() == ""
    found = {name for name in os.listdir(folder_of(last)) if not name.startswith(PARENT)}
    assert found == {BUILD, USERS, host_index.MANIFEST} | named(last)
    assert says(last) == should(world.config, last._held._parts)


# ── workers that are stopped ────────────────────────────────────────────────────────────────────────────────────────


def stop_at(path: Path, write: int) -> None:
    """A worker that is stopped at a write to the files, while it has the lock; let go on, it finishes what it began."""
    original, writes = os.pwrite, 0

    def stopping(file, content, at):
        nonlocal writes
        writes += 1
        if writes == write:
            os.kill(os.getpid(), signal.SIGSTOP)
        return original(file, content, at)

    cache = World(path).worker()
    host_files.os.pwrite = stopping
    assert cache._refresh() == ""


@pytest.mark.parametrize("write", [1, 2, 9])
def test_a_worker_that_is_stopped_while_it_builds_holds_up_nobody_for_long(tmp_path, write):
    """Who waits for it goes on by an index of its own, says so once, and is right at each change; once the other has
    gone on, it is stopped by nothing from sharing again.
    """
    world, chance = World(tmp_path), random.Random(write)
    first, waits = world.worker(), world.worker()
    assert first._refresh() == waits._refresh() == ""
    world.change(*world.keys)
    stopped = multiprocessing.get_context("fork").Process(target=stop_at, args=(tmp_path, write))
    stopped.start()
    assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
    try:
        why = [waits._refresh() for _ in range(host_index.IDLE_LOOKS + 1)]
        assert why == [BUSY] * host_index.IDLE_LOOKS + [""]
        for _ in range(6):
            assert says(waits) == should(world.config, waits._held._parts)
            world.change(*chance.sample(world.keys, 3))
            assert waits._refresh() == "", "it need not wait as long again"
            assert all(waits._held._parts[key][0] == f"1.{world.batches()[str(key)]}" for key in world.keys)
        assert waits.counted == [{"own_index": 1}], "once"
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    stopped.join()
    assert stopped.exitcode == 0
    for worker in (waits, first, waits):
        world.change(*chance.sample(world.keys, 3))
        assert worker._refresh() == ""
        assert says(worker) == should(world.config, worker._held._parts)
    assert not waits._held.own
    assert waits._held.host.names == waits._held._names
    assert first._refresh() == ""
    assert says(first) == says(waits)


def test_who_builds_for_long_is_waited_for(world, monkeypatch):
    """As long as the other uses the processor it is not stuck, however often one looks."""
    first, waits = world.worker(), world.worker()
    assert first._refresh() == waits._refresh() == ""
    used = iter(range(10**6))
    monkeypatch.setattr(host_index, "_ticks", lambda process: next(used))
    world.change(world.keys[0])
    with first._held.host.building():
        assert {waits._refresh() for _ in range(3 * host_index.IDLE_LOOKS)} == {BUSY}
    assert waits._refresh() == ""
    assert waits.counted == []


def test_a_folder_whose_remover_is_stopped_is_not_waited_for(world, monkeypatch):
    """Somebody was about to remove the folder, has it locked, and does not go on: a worker has an index of its own."""
    first, slept = world.worker(), []
    assert first._refresh() == ""
    folder = folder_of(first)
    first.close()
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(host_index.time, "sleep", slept.append)
    with (folder / USERS).open("w") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        second = world.worker()
        assert second._refresh() == ""
        assert second._held.alone
        assert second.counted == [{"own_index": 1}]
        assert says(second) == should(world.config, second._held._parts)
    assert len(slept) == host_index.IDLE_LOOKS


def ended(process) -> bool:
    assert process.exitcode in (0, -signal.SIGKILL), "a worker has found something wrong"
    return True
