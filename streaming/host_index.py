"""One index for all route workers of a host: files in memory that one of them writes and all map.

    FOLDER / hilcast-UID / NAME /     private to the user; one for each generation of a deployment, by its lineage
        manifest                      by junction: the name of its description
        (names of host_files.py)      descriptions, and the arrays that they name
        build                         locked by the worker that builds, and says which that is
        users                         locked, shared, by every worker that reads
        by.PID.START                  the parents of those workers: an idle job keeps its index

A worker that needs what the manifest does not have takes the lock, makes the junctions that are behind from what stands
there and from Redis, writes what is new of them, and puts a new manifest in the place of the old one in one step. So an
*epoch* of the host is a manifest and all that it names. Nobody is the builder for longer than that: whoever is first
goes on from where the last one came to, be it alive or not; the kernel takes a lock from who dies. One that is stopped
keeps its lock, and may go on at any moment: nobody else writes until then, and who waited in vain (`is_stuck`) goes on
by an index of its own.

What the last manifest names and the new one does not is unlinked. Who has it mapped keeps it; who was about to map it
finds it gone, and reads the new manifest. What a writer that died left behind, the next one removes.

A folder belongs to nobody once no worker has it locked and no parent that is noted lives: then whoever comes by removes
it. Names hold the boot of the host, the user, the deployment, its Redis, the lineage of the index and the code that
wrote it: what has another of these is in another folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

import msgspec

from state.config import Config
from state.redis_index import Holding, Look
from state.routing.junction import Junction, KeptJunction
from state.space.grid import Grid
from streaming.host_files import HostFiles

SHARED_MEMORY = Path("/dev/shm")
MANIFEST, BUILD, USERS, PARENT = "manifest", "build", "users", "by."
TOKEN_BYTES = 64
IDLE_LOOKS = 50
"""Who builds and does nothing between so many looks of one that waits, at `LOOK_S` or more, is stuck."""
LOOK_S = 0.1
LEAVING_S = 3.0
"""How long workers may take to end."""
FOLDER_VARIABLE = "HILCAST_INDEX_FOLDER"
"""Tells the daemon of the workers where their folders are, if not where they are by default."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
LAYOUT = (
    *("state.shelf", "state.arrays", "state.routing.junction", "state.routing.roll", "state.routing.numbered_boxes"),
    *("state.matchers.bitmap", "state.matchers.segment", "state.matchers.box_tree", "state.matchers.stree"),
    *(
        "state.filters.long_texts",
        "state.space.text_hashes",
        "state.space.ranges",
        "state.redis_index",
        "state.digests",
    ),
    *("streaming.host_files", __name__),
)
"""The modules that say what stands in the files: those of other code are never read."""

Place = tuple[str, str]
"""Broker and type of a junction."""


class Described(msgspec.Struct, array_like=True, frozen=True):
    """A junction on this host: which version of each part it holds, and where its arrays are."""

    parts: dict[str, tuple[str, Holding]]
    """By part: epoch and state. Who builds next follows deltas from there."""
    junction: KeptJunction


_manifest = msgspec.msgpack.Decoder(dict[str, dict[str, str]])
_described = msgspec.msgpack.Decoder(Described)


class HostIndex:
    """The index of one lineage on this host, as one worker knows it."""

    def __init__(self, folder: Path) -> None:
        """Enter a folder of `folder_for`; OSError where that cannot be had."""
        _make_private(folder.parent)
        sweep(folder.parent)
        self.folder = folder
        self._users = _entered(folder)
        self._build = os.open(folder / BUILD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        parent = _process(os.getppid())
        if parent:
            (folder / f"{PARENT}{parent}").touch(mode=0o600)
        self.files = HostFiles(folder)
        self.names: dict[Place, str] = {}
        """The manifest: the description of each junction."""
        self._described: dict[Place, Described] = {}
        self._opened: dict[Place, set[str]] = {}
        """By junction that was opened here: the files it needs."""
        self._last = b""
        """What this worker left in the lock when it built last."""
        self._idle, self._doing = 0, (b"", -1)
        """For how many looks who builds has been at the same point, and which that is."""

    # ── read ────────────────────────────────────────────────────────────────────────────────────────────────────

    def refresh(self) -> None:
        """Read the manifest, and the descriptions that are new in it.

        Raises FileNotFoundError where it names what is not there: somebody else has removed it.
        """
        tried = b""
        while True:
            try:
                stored = (self.folder / MANIFEST).read_bytes()
            except FileNotFoundError:
                self.names, self._described = {}, {}
                return  # nobody has built anything yet
            try:
                self._read(stored)
                return
            except FileNotFoundError:
                if stored == tried:
                    raise
                tried = stored  # another one took its place, perhaps

    def _read(self, manifest: bytes) -> None:
        stored = _manifest.decode(manifest)
        names = {(broker, type_name): name for broker, types in stored.items() for type_name, name in types.items()}
        fresh = {
            place: _described.decode((self.folder / name).read_bytes())
            for place, name in names.items()
            if self.names.get(place) != name
        }
        self._described = {place: fresh.get(place) or self._described[place] for place in names}
        self.names = names

    def parts(self, place: Place) -> Mapping[str, tuple[str, Holding]]:
        """By part of a junction: epoch and state of what is here."""
        described = self._described.get(place)
        return {} if described is None else described.parts

    def opened(self, config: Config, grid: Grid, place: Place, before: Junction | None = None) -> Junction:
        """A junction as it stands here; FileNotFoundError where the manifest has become another one meanwhile."""
        described = self._described.get(place)
        if described is None:
            return Junction(config.types[place[1]], grid)
        junction = Junction.opened(config.types[place[1]], grid, described.junction, self.files, before)
        named = self._named(place)
        self.files.forget(self._opened.get(place, set()) - named)
        self._opened[place] = named
        return junction

    def _named(self, place: Place) -> set[str]:
        """All files that a junction needs."""
        described = self._described.get(place)
        return set() if described is None else {self.names[place], *described.junction.names()}

    # ── build ───────────────────────────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def building(self) -> Iterator[bool]:
        """Whether this worker, and no other, may build until this ends. What is here is then read anew."""
        try:
            fcntl.flock(self._build, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            before, last = os.pread(self._build, TOKEN_BYTES, 0), self._last
            token, self._last, self._idle = self.files.new_name(), b"", 0
            # first of all: who waits looks at what this process does
            self._say(f"{token} {_process(os.getpid())}")
            try:
                self.refresh()
            except FileNotFoundError:
                self.clear()
            if not last or before != last:
                self._sweep()
            yield True
            self._last = self._say(token)
        finally:
            fcntl.flock(self._build, fcntl.LOCK_UN)

    def _say(self, token: str) -> bytes:
        said = token.encode().ljust(TOKEN_BYTES)
        os.pwrite(self._build, said, 0)
        return said

    def is_stuck(self) -> bool:
        """Whether who builds did nothing between this look and many before it: it is stopped, or waits for something.

        To be asked when `building` was not ours to do. One that works, be it for minutes, uses the processor.
        """
        token = os.pread(self._build, TOKEN_BYTES, 0)
        doing = token, _ticks(token.decode(errors="replace").strip().rpartition(" ")[2])
        self._idle = self._idle + 1 if doing == self._doing else 0
        self._doing = doing
        return self._idle >= IDLE_LOOKS

    def put(self, place: Place, junction: Junction, parts: Mapping[str, tuple[str, Holding]]) -> None:
        """Have all workers use this junction from now on. To be called while `building`."""
        before, described = self._named(place), Described(dict(parts), junction.keep(self.files))
        name = self.files.write([msgspec.msgpack.encode(described)])
        self.names, self._described = {**self.names, place: name}, {**self._described, place: described}
        stored: dict[str, dict[str, str]] = {}
        for (broker, type_name), one in self.names.items():
            stored.setdefault(broker, {})[type_name] = one
        aside = self.files.write([msgspec.msgpack.encode(stored)])
        os.rename(self.folder / aside, self.folder / MANIFEST)
        self.files.remove(before - self._named(place))

    def _sweep(self) -> None:
        """Remove what the manifest does not name: somebody died, or failed, before it did."""
        named = {MANIFEST, BUILD, USERS}.union(*(self._named(place) for place in self.names))
        found = {name for name in os.listdir(self.folder) if not name.startswith(PARENT)}
        self.files.remove(found - named)

    def clear(self) -> None:
        """Remove all that is here, where there is no room for the rest. To be called while `building`."""
        self.names, self._described = {}, {}
        (self.folder / MANIFEST).unlink(missing_ok=True)
        self._sweep()

    # ── leave ───────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Go away from here for good: what comes next is elsewhere."""
        (self.folder / f"{PARENT}{_process(os.getppid())}").unlink(missing_ok=True)
        os.close(self._users)
        os.close(self._build)
        sweep(self.folder.parent)


def _entered(folder: Path) -> int:
    """Enter a folder, made if it is not there; return the lock that says that somebody is in it.

    Raises TimeoutError where somebody began to remove it and does not go on.
    """
    for _ in range(IDLE_LOOKS):
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            users = os.open(folder / USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue  # removed between the two
        try:
            fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.stat(folder / USERS).st_ino == os.fstat(users).st_ino:
                return users
        except (BlockingIOError, FileNotFoundError):
            time.sleep(LOOK_S)
        os.close(users)  # it was removed, or is about to be
    raise TimeoutError(f"{folder} is locked by somebody who was about to remove it, and is stopped perhaps")


def folder_for(config: Config, look: Look) -> Path | None:
    """Where the index of this lineage is shared on this host; None where it is not known which lineage that is."""
    if look.writes is None:
        return None
    boot = BOOT.read_text() if BOOT.exists() else ""
    ours = _layout(), config.deployment, config.signing, config.shared
    said = (boot, *ours, look.run, look.writes.run, look.generation)
    digest = blake2b(repr(said).encode(), digest_size=8).hexdigest()
    return home_in(config.settings.index_folder) / f"{config.deployment.name}-{look.generation}-{digest}"


def home_in(given: str | None) -> Path:
    """The folder of this user: where it is said to be, in memory where that can be had, else among temporary files."""
    found = Path(given) if given else SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    return found / f"hilcast-{os.getuid()}"


def _make_private(home: Path) -> None:
    """Make the folder of a user, if it is not there, such that nobody else can look into it."""
    home.mkdir(mode=0o700, exist_ok=True, parents=True)
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{home} is not a folder that only this user can use")


def leave(given: str | None) -> None:
    """Remove what this process and its workers, which have just been told to end, were the last to use."""
    home, mine, until = home_in(given), _process(os.getpid()), time.monotonic() + LEAVING_S
    while home.is_dir():
        sweep(home, gone=os.getpid())
        if time.monotonic() > until or not list(home.glob(f"*/{PARENT}{mine}")):
            return
        time.sleep(0.05)


def sweep(home: Path, gone: int | None = None) -> None:
    """Remove the folders of a user that nobody uses; `gone`: a process that is about to end."""
    for folder in list(home.iterdir()):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            users = os.open(folder / USERS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                parents = [name.removeprefix(PARENT) for name in os.listdir(folder) if name.startswith(PARENT)]
                pids = [(int(parent.partition(".")[0]), parent) for parent in parents]
                if not any(_process(pid) == parent and pid != gone for pid, parent in pids):
                    shutil.rmtree(folder, ignore_errors=True)
            except BlockingIOError:
                pass  # somebody is in it
            finally:
                os.close(users)


def _process(pid: int) -> str:
    """A process by number and start, which together name one only; nothing if it does not live."""
    told = _told(pid)
    return "" if told[0] == "Z" else f"{pid}.{told[19]}"


def _ticks(process: str) -> int:
    """How long a process, named by `_process`, has used the processor; 0 if it does not live."""
    pid = process.partition(".")[0]
    if not pid.isdigit() or _process(int(pid)) != process:
        return 0
    told = _told(int(pid))
    return int(told[11]) + int(told[12])


def _told(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; of one that does not live that it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["Z", *["0"] * 20]


@cache
def _layout() -> str:
    digest = blake2b(digest_size=8)
    for name in LAYOUT:
        source = import_module(name).__file__
        assert source is not None
        digest.update(Path(source).read_bytes())
    return digest.hexdigest()
