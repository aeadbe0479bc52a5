"""The process that tries programs: jobs come as lines of JSON on standard input, answers go to standard output.

Run by `tests.fuzz.parent`; whatever a program does to it, the parent is told by its end.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from typing import Any, TextIO

from tests.fuzz.artifacts import try_damaged
from tests.fuzz.compiling import OPENCL, Options
from tests.fuzz.graph import from_json
from tests.fuzz.kinds import kind_module
from tests.fuzz.known import KNOWN
from tests.fuzz.plan import kind_of, program_of
from tests.fuzz.trial import Outcome, try_programs


def main() -> int:
    # Answers have a stream of their own: libraries print where they like.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    for line in sys.stdin:
        job = json.loads(line)
        if "artifacts" in job:
            _send(answers, {"outcomes": try_damaged(job["artifacts"], lambda text: _send(answers, {"doing": text}))})
            continue
        KNOWN.clear()
        KNOWN.update(job["known"])
        _send(answers, {"outcomes": [vars(outcome) for outcome in perform(job, answers)]})
    return 0


def perform(job: dict[str, Any], answers: TextIO) -> list[Outcome]:
    """The outcomes of a job's programs, worst of all its languages."""
    if job["source"]:
        attempt = kind_module(job["source"]).attempt
        return [attempt(seed, lambda text: _send(answers, {"doing": text})) for seed in job["seeds"]]
    graphs = [program_of(seed) for seed in job["seeds"]] if job["seeds"] else [from_json(g) for g in job["graphs"]]
    kind = kind_of(graphs[0].seed)
    other = "" if job["target"].startswith(OPENCL) else kind.options.other
    options = Options(job["target"] or kind.options.target, other, kind.options.threads)
    found = [Outcome() for _ in graphs]
    for language in kind.languages:
        outcomes = try_programs(graphs, language, options, lambda text: _send(answers, {"doing": text}))
        for whole, one in zip(found, outcomes, strict=True):
            whole.calls += one.calls
            if one.kind != "ok" and whole.kind in ("ok", "refused"):
                whole.kind, whole.text = one.kind, one.text
                whole.language = language
    return found


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
