"""Forms of operators and random programs, compiled for a GPU here and run on one elsewhere.

    python -m tests.gpu_forms pack FOLDER [--group NAME …] [--at-once N] [--target DEVICE]
    python -m tests.gpu_forms run FOLDER [--device cuda:0] [-o RESULTS.json]

`pack` needs the compiler, and ONNX or PyTorch for their forms; `run` needs the runtime alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.gpu_forms", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("pack", help="compile forms and write them with what they should give")
    pack.add_argument("folder", type=Path)
    pack.add_argument("--group", action="append", default=[], help="which groups; default: all")
    pack.add_argument("--at-once", type=int, default=12, help="forms in one program")
    pack.add_argument("--every", type=int, default=1, help="one form of so many")
    pack.add_argument("--target", default="cuda{arch=sm_90a}")
    run = commands.add_parser("run", help="run what was packed, on a GPU")
    run.add_argument("folder", type=Path)
    run.add_argument("--device", default="cuda:0")
    run.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    run.add_argument("-o", dest="output", type=Path)
    commands.add_parser("worker", help=argparse.SUPPRESS).add_argument("device")
    given = parser.parse_args(arguments)
    if given.command == "pack":
        from tests.gpu_forms.pack import pack_groups

        return pack_groups(given.folder, given.group, given.at_once, given.every, given.target)
    from tests.gpu_forms import run as running

    if given.command == "worker":
        return running.work(given.device)
    return running.run(given.folder, given.device, given.seconds, given.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
