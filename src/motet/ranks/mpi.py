"""A transport over MPI, by the package mpi4py: its communicator's processes are the ranks.

Data and control have communicators of their own, so that messages of other users of MPI in the process never meet
them.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from motet.errors import DeviceError
from motet.ranks.in_process import missing
from motet.ranks.transport import Array, MessageRequest

_SPINS = 2000  # tests of a request without sleeping


class MpiTransport:
    """See `motet.ranks.transport.RankTransport`. `communicator` is mpi4py's, by default the world. Raises DeviceError
    if this MPI cannot be called from several threads."""

    def __init__(self, communicator: Any = None) -> None:
        self._mpi: Any = importlib.import_module("mpi4py.MPI")  # without types; starts MPI
        if self._mpi.Query_thread() < self._mpi.THREAD_MULTIPLE:
            raise DeviceError("MPI: this build allows calls from one thread only; expected one with "
                              "MPI_THREAD_MULTIPLE, such as that of pip install 'motet[mpi]'")
        base: Any = self._mpi.COMM_WORLD if communicator is None else communicator
        self._base = base
        self._data: Any = base.Dup()
        self._control: Any = base.Dup()
        for each in (self._data, self._control):
            each.Set_errhandler(self._mpi.ERRORS_RETURN)
        self.lost = False  # whether another rank did not answer in time
        self.rank: int = base.Get_rank()
        self.size: int = base.Get_size()

    def start_send(self, peer: int, tag: int, data: Array) -> MessageRequest:
        return _MpiRequest(self._mpi, self._data.Isend([data, self._mpi.BYTE], dest=peer, tag=tag), data.nbytes)

    def start_receive(self, peer: int, tag: int, data: Array | None) -> MessageRequest:
        if data is None:
            return _Discarded(self._mpi, self._data, peer, tag)
        return _MpiRequest(self._mpi, self._data.Irecv([data, self._mpi.BYTE], source=peer, tag=tag), None)

    def gather(self, item: bytes, timeout: float) -> list[bytes]:
        counts = np.zeros(self.size, np.int64)
        self._finish(self._control.Iallgather(np.array([len(item)], np.int64), counts), timeout)
        total = np.empty(int(counts.sum()), np.uint8)
        begins = [int(begin) for begin in np.concatenate([[0], np.cumsum(counts)[:-1]])]
        own = np.frombuffer(item, np.uint8)
        into = [total, [int(count) for count in counts], begins, self._mpi.BYTE]
        self._finish(self._control.Iallgatherv([own, self._mpi.BYTE], into), timeout)
        return [total[begin : begin + int(count)].tobytes() for begin, count in zip(begins, counts, strict=True)]

    def broadcast(self, content: bytes | None, root: int, timeout: float) -> bytes:
        size = np.array([len(content or b"")], np.int64)
        self._finish(self._control.Ibcast(size, root=root), timeout)
        data = np.empty(int(size[0]), np.uint8)
        if self.rank == root:
            data[:] = np.frombuffer(content or b"", np.uint8)
        piece = 1 << 30  # MPI counts bytes in 32 bits
        for begin in range(0, len(data), piece):
            self._finish(self._control.Ibcast([data[begin : begin + piece], self._mpi.BYTE], root=root), timeout)
        return data.tobytes()

    def abort(self, reason: str) -> None:
        if not self._mpi.Is_finalized():
            self._base.Abort(1)

    def close(self) -> None:
        if not self._mpi.Is_finalized():
            self._data.Free()
            self._control.Free()

    def _finish(self, request: Any, timeout: float) -> None:
        """Wait without occupying a processor that another rank may need. Raises RankFailure after `timeout` seconds."""
        end, spins = time.monotonic() + timeout, 0
        try:
            while not request.Test():
                spins += 1
                time.sleep(0 if spins < _SPINS else 2e-4)
                if time.monotonic() > end:
                    self.lost = True
                    raise missing([rank for rank in range(self.size) if rank != self.rank], timeout)
        except self._mpi.Exception as error:
            raise DeviceError(f"MPI: {error}") from None


class _MpiRequest:
    """A request of MPI; `sent` are the bytes of a message that is sent."""

    def __init__(self, mpi: Any, request: Any, sent: int | None) -> None:
        self._mpi = mpi
        self._request = request
        self._moved: int | None = None
        self._sent = sent

    def test(self) -> int | None:
        if self._moved is None:
            status = self._mpi.Status()
            try:
                if self._request.Test(status):
                    self._moved = self._sent if self._sent is not None else int(status.Get_count(self._mpi.BYTE))
            except self._mpi.Exception as error:
                raise DeviceError(f"MPI: {error}") from None
        return self._moved


class _Discarded:
    """Receives a message of any length, which is dropped."""

    def __init__(self, mpi: Any, communicator: Any, peer: int, tag: int) -> None:
        self._mpi = mpi
        self._communicator = communicator
        self._from = peer, tag
        self._moved: int | None = None

    def test(self) -> int | None:
        if self._moved is None:
            status = self._mpi.Status()
            try:
                message = self._communicator.Improbe(*self._from, status)
                if message is not None:
                    data = np.empty(int(status.Get_count(self._mpi.BYTE)), np.uint8)
                    message.Recv([data, self._mpi.BYTE])
                    self._moved = data.nbytes
            except self._mpi.Exception as error:
                raise DeviceError(f"MPI: {error}") from None
        return self._moved
