"""Sessions on a GPU for compute-sanitizer to watch: graphs, launches, arenas, transfers, streams of others.

    compute-sanitizer python -m tests.unit.runtime.drivers.cuda.sanitized [DEVICE]
"""

from __future__ import annotations

import sys

import numpy as np
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, expected_chain

from motet.runtime import load


def main(device: str) -> None:
    for length in (1, 2, 7):
        with load(affine_chain(length), devices=device) as session:
            for rows in (1, 33, 4001, 33, 600_000):
                x = np.random.default_rng(rows).integers(-99, 99, rows, np.int32)
                there = session.put(x)
                for y in (session(x), session(there), session(there, stream=0).numpy()):
                    np.testing.assert_array_equal(y, expected_chain(x, length))
    print("nothing went wrong")


if __name__ == "__main__":
    main(*(sys.argv[1:2] or ["cuda:0"]))
