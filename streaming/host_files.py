"""A shelf of arrays in the files of one folder: written by who builds, mapped by all who read.

    NAME         some arrays: a header of kinds and shapes, then each where a cache line begins
    NAME         a column: its values and nothing else; longer than any reader of it knows, at times

Files are made under names that were never used before, written and then only read; a column is written behind what
anybody reads of it. So a writer that dies leaves bytes that nothing names, and nothing else. What is no longer named
is unlinked: who has it mapped keeps it, and memory is free again once nobody has.

Files are written by calls, not through a mapping: a full disk is then an error, and not a signal that ends the process.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from state.shelf import Array

ALIGNED = 64
"""Arrays begin at multiples of this."""
_HEADER = msgspec.msgpack.Decoder(list[tuple[str, list[int], int]])


class _Mapped:
    """Bytes of a mapped file, as numpy takes them.

    They are said to be writable, though writing would end the process: compiled kernels would otherwise be compiled a
    second time, for arrays that are not.
    """

    def __init__(self, buffer: pa.Buffer) -> None:
        self.buffer = buffer
        self.__array_interface__ = {
            "data": (buffer.address, False), "shape": (buffer.size,), "typestr": "|u1", "version": 3,
        }  # fmt: skip


def _map(path: Path) -> Array:
    with pa.memory_map(str(path), "r") as file:
        return np.asarray(_Mapped(file.read_buffer()))


class HostFiles:
    """The arrays of one folder: a shelf (`state/shelf.py`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = 0
        """Bytes that were written."""
        self._writer = uuid.uuid4().hex[:12]
        self._files = 0
        self._read: dict[str, list[Array]] = {}

    def new_name(self) -> str:
        """A name that nobody has used."""
        self._files += 1
        return f"{self._writer}.{self._files}"

    def keep(self, arrays: Sequence[Array]) -> str:
        places, size = [], 0
        for array in arrays:
            places.append((array.dtype.str, list(array.shape), size))
            size += _room(array.nbytes)
        header = msgspec.msgpack.encode(places)
        chunks: list[bytes | memoryview] = [len(header).to_bytes(8, "little"), header, _padding(8 + len(header))]
        for array in arrays:
            if array.nbytes:
                chunks += [_bytes(array), _padding(array.nbytes)]
        return self.write(chunks)

    def read(self, name: str) -> list[Array]:
        if name not in self._read:
            self._read[name] = self._opened(name)
        return self._read[name]

    def _opened(self, name: str) -> list[Array]:
        mapped = _map(self.folder / name)
        header = int.from_bytes(bytes(mapped[:8]), "little")
        first = _room(8 + header)
        arrays = []
        for kind, shape, at in _HEADER.decode(bytes(mapped[8 : 8 + header])):
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
            arrays.append(mapped[first + at : first + at + size].view(kind).reshape(shape))
        return arrays

    def grow(self, name: str | None, values: Array, first: int) -> str:
        content = _bytes(values) if len(values) else b""
        if name is None:
            return self.write([content])
        self._put(name, 0, [content], first * values.itemsize)
        return name

    def column(self, name: str, kind: np.dtype[Any], size: int) -> Array:
        if size == 0:
            return np.empty(0, kind)
        return _map(self.folder / name)[: size * kind.itemsize].view(kind)

    def forget(self, names: Iterable[str]) -> None:
        """Nobody here needs these any more."""
        for name in names:
            self._read.pop(name, None)

    def remove(self, names: Iterable[str]) -> None:
        """Unlink files; who has them mapped keeps them."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def write(self, chunks: Iterable[bytes | memoryview]) -> str:
        """Write a file under a new name."""
        name = self.new_name()
        self._put(name, os.O_CREAT | os.O_EXCL, chunks, 0)
        return name

    def _put(self, name: str, flags: int, chunks: Iterable[bytes | memoryview], at: int) -> None:
        file = os.open(self.folder / name, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
        try:
            for chunk in chunks:
                left = memoryview(chunk)
                while len(left):
                    done = os.pwrite(file, left, at)
                    left, at, self.written = left[done:], at + done, self.written + done
        finally:
            os.close(file)


def _bytes(array: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _room(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _padding(size: int) -> bytes:
    return b"\0" * (_room(size) - size)
