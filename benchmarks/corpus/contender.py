"""The process of one contender of the corpus: reads commands as lines of JSON and answers each with one line.

    {"do": "subject" | "prepare", "row": NAME}   {"do": "round", "seconds": S}   {"do": "profile"}

Started as `-m benchmarks.corpus.contender NAME THREADS FOLDER SEED COUNT TARGET` on the cores it may use. SEED and
COUNT are those of the fresh rows. Output of libraries is redirected to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contender import Process
from benchmarks.corpus.networks import network_rows
from benchmarks.corpus.operators import fresh_rows, operator_rows
from benchmarks.corpus.peers import PEERS, Motet, Peer
from benchmarks.corpus.row import Row
from benchmarks.corpus.subject import load_results, prepare, wrong
from benchmarks.peers import Absent


class Seat(Process):
    """One contender and its prepared row."""

    def __init__(self, peer: Peer, threads: int, folder: Path) -> None:
        self.peer, self.threads, self.folder = peer, threads, folder
        self.call: Any = None

    def ready(self, row: Row) -> dict[str, Any]:
        """Prepare `row` and compare its result with the reference."""
        self.call = None
        start = time.perf_counter()
        call, read = self.peer.prepare(row, self.folder, self.threads)
        seconds = time.perf_counter() - start
        found = [np.asarray(array) for array in read(call())]
        expected = load_results(row, self.folder)
        if why := wrong(row, found, expected, self.peer.allowed(row)):
            return {"wrong": why}
        self.call = call
        return {"seconds": seconds}


def rows_of(seed: int, count: int) -> dict[str, Row]:
    """All rows by name: operators, networks, and `count` fresh rows drawn with `seed`."""
    return {row.name: row for row in (*operator_rows(), *network_rows(), *fresh_rows(seed, count))}


def _peer(name: str, threads: int, target: str) -> Peer:
    kind = next(kind for kind in PEERS if kind.name == name)
    if find_spec(kind.module or kind.package) is None:
        raise Absent(f"not installed: pip install {kind.package}")
    peer = Motet(target) if kind is Motet else kind()
    peer.start(threads)
    return peer


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, threads, folder, target = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[6]
    rows = rows_of(int(sys.argv[4]), int(sys.argv[5]))
    seat: Seat | None = None
    for line in sys.stdin:
        command = json.loads(line)
        do = command["do"]
        try:
            if do == "subject":
                prepare(rows[command["row"]], folder)
                answer: dict[str, Any] = {}
            else:
                seat = seat or Seat(_peer(name, threads, target), threads, folder)
                if do == "prepare":
                    answer = seat.ready(rows[command["row"]])
                elif do == "round":
                    answer = seat.round(command["seconds"])
                else:
                    answer = {"kernels": seat.peer.profile() if isinstance(seat.peer, Motet) else []}
        except Absent as absent:
            answer = {"absent": str(absent)}
        except Exception as error:
            said = (str(error).strip().splitlines() or [""])[0]
            answer = {"absent": f"{type(error).__name__}: {said}"[:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
