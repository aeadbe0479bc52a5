"""Workers that compile schedules at the same time: `local:N`, or the address of a Dask scheduler.

Each compilation is a process anyway: local workers are threads that wait for them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from motet.artifact.reader import Artifact
from motet.compiler.kernels.schedule import KernelSchedule
from motet.errors import MotetError, OptionError
from motet.lab.subject import KernelSubject, compile_with

_MOST = 1024  # local workers


class Workers(Protocol):
    """`count` schedules are compiled at the same time."""

    @property
    def count(self) -> int: ...

    def compile(self, subject: KernelSubject, schedules: Sequence[KernelSchedule]) -> list[Artifact | MotetError]:
        """An artifact for each schedule, or why there is none."""
        ...


class LocalWorkers:
    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count)

    def compile(self, subject: KernelSubject, schedules: Sequence[KernelSchedule]) -> list[Artifact | MotetError]:
        return list(self._pool.map(lambda schedule: _compiled(subject, schedule), schedules))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class DaskWorkers:
    """Workers of a Dask cluster, which have Motet installed."""

    def __init__(self, address: str) -> None:
        try:
            distributed: Any = importlib.import_module("distributed")
        except ImportError:
            raise OptionError(f"workers {address}: the package distributed is not installed; install it with: "
                              "pip install 'motet[search]', or use local:N") from None
        self._address = address
        try:
            self._client = distributed.Client(address, timeout=10)
        except (OSError, ValueError) as error:
            raise OptionError(f"workers {address}: no scheduler: {error}; expected local:N or an address such as "
                              "tcp://host:8786") from None
        self.count = max(1, len(self._client.nthreads()))

    def compile(self, subject: KernelSubject, schedules: Sequence[KernelSchedule]) -> list[Artifact | MotetError]:
        futures = [self._client.submit(compiled_bytes, subject, schedule, pure=False) for schedule in schedules]
        return [self._result(future) for future in futures]

    def _result(self, future: Any) -> Artifact | MotetError:
        """An artifact; the error of a schedule that ends its workers. Raises OptionError if the cluster has stopped."""
        try:
            data = future.result()
        except Exception as error:  # Dask's own errors, and those of its connections
            told = f"workers {self._address}: {type(error).__name__}: {str(error) or 'no answer'}"
            if self._client.status != "running" or not self._client.nthreads():
                raise OptionError(f"{told}; the cluster has stopped; start it again, and --resume goes on") from None
            return MotetError(told)
        return Artifact.from_bytes(data) if isinstance(data, bytes) else MotetError(str(data))

    def close(self) -> None:
        self._client.close()


def compiled_bytes(subject: KernelSubject, schedule: KernelSchedule) -> bytes | str:
    """The artifact, or the error's text: what a worker on another machine returns."""
    found = _compiled(subject, schedule)
    return bytes(found.data) if isinstance(found, Artifact) else str(found)


def _compiled(subject: KernelSubject, schedule: KernelSchedule) -> Artifact | MotetError:
    try:
        return compile_with(subject, schedule)
    except MotetError as error:
        return error


@contextlib.contextmanager
def workers_of(text: str) -> Generator[Workers]:
    """The workers that `text` names: `local` for as many as processors, `local:N`, or an address. Raises OptionError.
    """
    match = re.fullmatch(r"local(?::(\w*))?", text)
    if match is None and not re.match(r"\w+://|[\w.-]+:\d+$", text):
        raise OptionError(f"--workers {text}: expected local:N, or the address of a Dask scheduler")
    if match is not None and match[1] is not None and not (match[1].isdecimal() and 0 < int(match[1]) <= _MOST):
        raise OptionError(f"--workers {text}: expected a number of workers from 1 to {_MOST}")
    count = int(match[1]) if match is not None and match[1] else len(os.sched_getaffinity(0))
    workers = DaskWorkers(text) if match is None else LocalWorkers(count)
    try:
        yield workers
    finally:
        workers.close()
