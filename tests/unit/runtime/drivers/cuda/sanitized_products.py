"""Products by cuBLASLt on a GPU for compute-sanitizer to watch: as they are, in graphs, on a stream of someone else's.

    compute-sanitizer python -m tests.unit.runtime.drivers.cuda.sanitized_products [DEVICE]
"""

from __future__ import annotations

import sys

from tests.unit.runtime.drivers.cuda.library_cases import CASES, artifact_of

from motet.runtime import load
from motet.runtime.drivers.cuda.cublaslt import installed


def main(device: str) -> None:
    if next(installed(), None) is None:
        print("cuBLASLt is not installed")
        return
    for name in ("bias, relu", "split along the sum", "a batch, turned, with bias", "f16, odd"):
        case = CASES[name]
        with load(artifact_of(case), devices=device) as session:
            assert not session.notes, session.notes
            sets = [case.inputs(seed) for seed in range(3)]
            there = [[session.put(x) for x in inputs] for inputs in sets]
            for _ in range(3):
                for inputs, tensors in zip(sets, there, strict=True):
                    for result in (session(*inputs), session(*tensors, stream=0).numpy()):
                        case.check(result, inputs)
    print("nothing went wrong")


if __name__ == "__main__":
    main(*(sys.argv[1:2] or ["cuda:0"]))
