"""`python -m tests.fuzz`: tries random programs against a reference of its own."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.fuzz.known import KNOWN

EPILOG = """\
What it does. Every seed stands for a program: a random graph of operators, written as ONNX, as MLIR (linalg), as
StableHLO, or as all three, compiled for a random processor level, as a whole or split over two devices. Each program is
called with right arguments (several extents, values and layouts), whose results must be within the errors that
roundings in its types can make, and with wrong ones, which must be refused in one clear line.

A quarter of the batches are of other kinds, in turn: bodies of loops and branches, hostile models, random placements
of which a device is lost, random schedules, random shardings, and, where it is installed, modules of PyTorch with
dynamic extents.

What counts. A refusal is no failure, and is counted by its reason. Failures are
  wrong   a result beyond the bound, or a wrong call that was accepted
  crash   the compiler or the call ended its process, or raised anything but Motet's own errors
  hang    nothing happened for {patience:.0f} seconds

Examples:
  python -m tests.fuzz --seconds 600                   ten minutes, from a random seed, which is printed
  python -m tests.fuzz --seed 240 --count 24           the batch of seed 240
  python -m tests.fuzz --seconds 600 --resume build/fuzz.jsonl
                                                       goes on where the file ends, and appends to it
  python -m tests.fuzz --kind hostile --seconds 60     one of the other kinds alone
  python -m tests.fuzz show 7 --kind hostile           prints its program
  python -m tests.fuzz show 241                        prints the program of a seed
  python -m tests.fuzz minimise 241                    makes it smaller while it fails in the same way, and writes
                                                       build/fuzz-241.json (and .onnx or .mlir) to try again
  python -m tests.fuzz replay build/fuzz-241.json      tries a written program again
  python -m tests.fuzz artifacts --count 10000         damages artifacts and their manifests instead
"""


def main() -> int:
    arguments = _parser().parse_args()
    KNOWN.difference_update(KNOWN if "all" in arguments.include else arguments.include)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tests.fuzz import commands

    command = {
        "run": commands.run, "show": commands.show_seeds, "minimise": commands.minimise_seed,
        "replay": commands.replay, "artifacts": commands.artifacts,
    }[arguments.command]
    return command(arguments)


def _parser() -> argparse.ArgumentParser:
    from tests.fuzz.parent import PATIENCE

    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Tries random programs against a reference written for it.",
        epilog=EPILOG.format(patience=PATIENCE), formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", nargs="?", default="run", choices=("run", "show", "minimise", "replay", "artifacts"),
                        help="what to do; run if it is left out")
    parser.add_argument("what", nargs="*", help="seeds, or the file of replay")
    parser.add_argument("--seconds", type=float, help="end after this time")
    parser.add_argument("--count", type=int, help="end after so many programs (or damaged artifacts)")
    parser.add_argument("--seed", type=int, help="the first seed; a random one if it is left out")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once (%(default)s)")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on where this file of results ends")
    parser.add_argument("--results", type=Path, metavar="FILE", help="append results to this file")
    parser.add_argument("--kind", default="", metavar="KIND",
                        help="bodies, exported, hostile, placements, schedules or shardings")
    parser.add_argument("--target", default="", help="a processor level for all, such as x86-64-v3")
    parser.add_argument("--include", action="append", default=[], metavar="NAME",
                        help="draw what is known to be wrong, too: all, or one of "
                        f"{', '.join(sorted(KNOWN)) or 'none'}")
    parser.add_argument("--quiet", action="store_true", help="print failures and the last line alone")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

