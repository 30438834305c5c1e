"""The checkpoint: damaged files, an unclean boot, topics that were made again; on a directory and on any file system.

The other file system is Hadoop's `viewfs://`, which needs no network: a scheme of its own, mapped to a directory.
"""

from __future__ import annotations

import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.java_gateway import launch_gateway

from state.errors import HilcastError
from streaming import checkpoint
from streaming.checkpoint import Checkpoint, Generation
from streaming.folders import LOCK, Directory, SparkFolder, local_path

FIRST = Generation(3, "abc", "{}", {"t": []})
OWNER = "hilcast main"


class Settings(dict):
    """What a gateway is given."""

    def getAll(self):
        return self.items()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    """A JVM with a file system beside the local one."""
    where = tmp_path_factory.mktemp("shared")
    link = {"spark.hadoop.fs.viewfs.mounttable.default.link./shared": f"file://{where}", "spark.driver.memory": "256m"}
    opened = launch_gateway(Settings(link))
    yield opened
    opened.shutdown()


@pytest.fixture(params=["directory", "file:", "viewfs:"])
def place(request, tmp_path, unique):
    """Opens the same folder again and again."""
    if request.param == "viewfs:":
        gateway = request.getfixturevalue("gateway")
        return lambda owner=OWNER: SparkFolder(gateway, f"viewfs:///shared/{unique}", owner)
    path = local_path(f"file://{tmp_path}/a%20b") if request.param == "file:" else tmp_path / "a b"
    assert path == tmp_path / "a b"
    return lambda owner=OWNER: Directory(path)


def opened(place, monkeypatch, boot="boot-1"):
    monkeypatch.setattr(checkpoint, "_boot", lambda: boot)
    monkeypatch.setattr(checkpoint, "_is_java", lambda pid: False)
    return Checkpoint(place())


def lose(kept):
    """Go without closing: the lock of a process ends with it."""
    if isinstance(kept._folder, Directory):
        kept._folder._lock.close()


def test_an_unclean_boot_is_noticed(place, monkeypatch):
    """Only if the host went down under a job: not after a clean end, not after a kill on a host that stayed up.

    Nor where what was written does not go down with the host.
    """
    kept = opened(place, monkeypatch)
    assert not kept.power_lost()
    kept.record(4242)
    kept.close()
    kept = opened(place, monkeypatch, "boot-2")
    assert not kept.power_lost(), "it was closed"
    kept.record(4242)
    lose(kept)
    kept = opened(place, monkeypatch, "boot-2")
    assert not kept.power_lost(), "the host stayed up"
    lose(kept)
    on_host = isinstance(kept._folder, Directory)
    kept = opened(place, monkeypatch, "boot-3")
    assert kept.power_lost() == on_host
    lose(kept)
    kept = opened(place, monkeypatch, "boot-3")
    assert kept.power_lost() == on_host, "until somebody has taken it up"
    kept.record(4243)
    lose(kept)
    assert not opened(place, monkeypatch, "boot-3").power_lost()


def test_a_commit_that_came_without_its_offsets_is_dropped(place, monkeypatch):
    """A full disk takes the few bytes of a commit, and not those of the offsets: Spark would fail for ever."""
    kept = opened(place, monkeypatch)
    where = kept.route({"in": "id"})
    name = where.rpartition("/")[2]
    for log, batches in (("offsets", (7, 9)), ("commits", (7, 9, 10, 11))):
        for batch in batches:
            put(kept._folder, f"{name}/{log}/{batch}")
    assert kept.route({"in": "id"}) == where
    folder = kept._folder
    for log in ("offsets", "commits"):
        assert {re.sub(r"^\.|\.crc$", "", found) for found in folder.names(f"{name}/{log}")} == {"7", "9"}
    for batch in ("7", "9"):
        folder.remove(f"{name}/offsets/{batch}")
    kept.route({"in": "id"})
    assert folder.names(f"{name}/commits") == [], "no batch has begun"
    lose(kept)


def put(folder, name):
    """Write a file of Spark's."""
    if isinstance(folder, Directory):
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text("v1")
        (folder.path / name).with_name(f".{name.rpartition('/')[2]}.crc").write_text("sum")
        return
    folder._files.mkdirs(folder._path(name.rpartition("/")[0]))
    stream = folder._files.createAtomic(folder._path(name), False)
    stream.write(b"v1")
    stream.close()


@pytest.mark.parametrize("differs", ["nothing", "host", "boot", "jvm_started"])
def test_the_jvm_of_another_host_or_life_is_not_waited_for(place, monkeypatch, differs):
    """Process ids repeat in every pod: one counts only on its host, in its boot, from its start."""
    kept = Checkpoint(place())
    kept.record(os.getpid())
    said = json.loads(kept._folder.read(LOCK))
    assert said["pid"] == said["jvm"] == os.getpid()
    assert said["started"] == said["jvm_started"] != ""
    if differs != "nothing":
        said[differs] += "x"
    kept._folder.hold(json.dumps(said))
    lose(kept)
    monkeypatch.setattr(checkpoint, "_is_java", lambda pid: True)
    monkeypatch.setattr(checkpoint, "JVM_ENDS_S", 0.0)
    if differs == "nothing":
        with pytest.raises(HilcastError, match="checkpoint-locked: the JVM"):
            Checkpoint(place())
    else:
        Checkpoint(place())


@pytest.mark.parametrize("text", ["12 34\n", "", "closed\n", "{}", "[1]"])
def test_a_lock_that_names_nobody_tells_nothing(tmp_path, monkeypatch, text):
    """A lock that an older version wrote is no unclean boot."""
    (tmp_path / "lock").write_text(text)
    assert not opened(lambda: Directory(tmp_path), monkeypatch).power_lost()


@pytest.mark.parametrize("text", ["", "{", '{"number": 3}', "[]", '{"number": 3, "fingerprint": "a", "x": 1}', "null"])
def test_a_damaged_generation_counts_as_lost(place, monkeypatch, text):
    """A file cut short by a full disk is no reason not to start: everything is in the registry."""
    kept = opened(place, monkeypatch)
    kept._folder.replace("generation.json", text)
    assert kept.generation() is None
    kept.begin(FIRST)
    assert kept.generation() == FIRST


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
@pytest.mark.parametrize("which", ["topics", "followed"])
def test_topics_are_remembered(place, monkeypatch, text, which):
    """By name and id; nothing is known where the file is missing or damaged. Those of patterns stand apart."""
    kept = opened(place, monkeypatch)
    assert getattr(kept, which)() == {}
    kept._folder.replace(f"{which}.json", text)
    assert getattr(kept, which)() == {}
    getattr(kept, f"keep_{which}")({"a": "1"})
    kept.close()
    again = opened(place, monkeypatch)
    assert getattr(again, which)() == {"a": "1"}
    assert getattr(again, "topics" if which == "followed" else "followed")() == {}


def test_the_route_query_begins_anew_when_an_input_was_made_again(place, monkeypatch):
    """Offsets of the old topic mean nothing in the new one: same names, another id, another folder."""
    kept = opened(place, monkeypatch)
    first = kept.route({"publications": "id1"})
    kept._folder.replace(first.rpartition("/")[2], "as if Spark had written there")
    assert kept.route({"publications": "id1"}) == first
    assert kept.route({"publications": "id2"}) != first


def test_states_of_earlier_generations_go(tmp_path, monkeypatch):
    """Those of the one that begins, and what is not ours, stay."""
    for name in ("control-2/0", "control-3/0", "route-x/0", "other/0"):
        (tmp_path / name).mkdir(parents=True)
    kept = opened(lambda: Directory(tmp_path), monkeypatch)
    kept.begin(FIRST)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"control-3", "route-x", "other"}


def test_one_job_at_a_time(tmp_path, monkeypatch):
    """A second job on the same directory is refused."""
    first = opened(lambda: Directory(tmp_path), monkeypatch)
    with pytest.raises(HilcastError, match="checkpoint-locked"):
        opened(lambda: Directory(tmp_path), monkeypatch)
    first.close()
    opened(lambda: Directory(tmp_path), monkeypatch)


def test_elsewhere_a_folder_has_one_owner(gateway, unique):
    """Of deployments that make one folder at the same time one owns it, and the others are refused, now and later."""
    uri, refused = f"viewfs:///shared/{unique}", []
    barrier = threading.Barrier(4)

    def make(owner):
        barrier.wait()
        try:
            return SparkFolder(gateway, uri, owner)
        except HilcastError as error:
            refused.append(error.code)

    with ThreadPoolExecutor(4) as pool:
        made = [folder for folder in pool.map(make, "abcd") if folder is not None]
    assert len(made) == 1
    assert refused == ["checkpoint-locked"] * 3


def test_elsewhere_a_driver_that_was_followed_writes_nothing(gateway, unique, monkeypatch):
    """Another driver of the deployment has the lease and has written itself down: the first one is refused."""
    uri = f"viewfs:///shared/{unique}"
    first, second = (Checkpoint(SparkFolder(gateway, uri, OWNER)) for _ in range(2))
    first.record(1)
    first.begin(FIRST)
    second.record(2)
    with pytest.raises(HilcastError, match="superseded"):
        first.keep_topics({"a": "1"})
    assert second.topics() == {}
    assert second.generation() == FIRST


def test_elsewhere_a_file_is_whole_at_every_moment(gateway, unique):
    """Who reads while it is replaced finds one of the texts, all of it, never nothing."""
    folder = SparkFolder(gateway, f"viewfs:///shared/{unique}", OWNER)
    texts = [str(i) * 5000 for i in range(10)]
    folder.replace("f", texts[0])
    done, seen = threading.Event(), set()

    def read():
        while not done.is_set():
            seen.add(folder.read("f"))

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for text in texts * 2:
            folder.replace("f", text)
        done.set()
        reading.result()
    assert seen <= set(texts)
    assert len(seen) > 1
    assert folder.read("f") == texts[-1]
    assert len([name for name in folder.names() if name.startswith("f.")]) == 1


def test_elsewhere_that_cannot_be_reached_is_said(gateway):
    """A scheme that nobody knows is an error with a code, not a directory of that name."""
    with pytest.raises(HilcastError, match="checkpoint-away: nowhere://h/x cannot be used"):
        SparkFolder(gateway, "nowhere://h/x", OWNER)
