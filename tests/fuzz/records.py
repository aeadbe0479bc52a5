"""What is kept of a campaign: a file of lines of JSON, one for each batch and each failure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.parent import Finding

FAILURES = ("wrong", "error", "crash", "hang")


@dataclass
class Tally:
    """The sums of a campaign. `next_seed` is where it goes on."""

    programs: int = 0
    calls: int = 0
    mutated: int = 0
    failures: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    next_seed: int = 0

    @property
    def failed(self) -> bool:
        return any(self.failures[kind] for kind in FAILURES)

    def add(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.programs += 1
            self.calls += finding.calls
            if finding.kind == "refused":
                self.refusals[reason(finding.text)] += 1
            elif finding.kind != "ok":
                self.failures[finding.kind] += 1
        self.next_seed = max(self.next_seed, *(finding.seed + 1 for finding in findings))

    def show(self) -> str:
        """One line."""
        crashes = self.failures["crash"] + self.failures["error"]
        most = [f"{text}: {count}" for text, count in self.refusals.most_common(12)]
        rest = len(self.refusals) - len(most)
        reasons = "; ".join(most) + (f"; {rest} other reasons" if rest > 0 else "")
        mutated = f"mutated artifacts {self.mutated:,}, " if self.mutated else ""
        return (
            f"programs {self.programs:,}, calls {self.calls:,}, {mutated}wrong {self.failures['wrong']}, "
            f"crashes {crashes}, hangs {self.failures['hang']}, refusals {self.refusals.total():,}"
            + (f" ({reasons})" if reasons else "")
        )


_SHORT = (
    (re.compile(r"^(fuzz: |fuzz:\d+:\d+: )"), ""),
    (re.compile(r"\b(node |input |output |result )'?p\d+_\w+'?:? ?"), ""),
    (re.compile(r"\((operator set \d+)\) "), ""),
    (re.compile(r" for inputs of .*"), ""),
    (re.compile(r"'?\"?\bp\d+_\w+\"?'?"), "…"),
    (re.compile(r"\b(main|p\d+)_kernel_\d+"), "kernel"),
    (re.compile(r"tensor<[^>]*>|\[[^\]]*\]"), "…"),
    (re.compile(r"\d+"), "N"),
)


def reason(text: str) -> str:
    """A refusal without what belongs to its program alone."""
    for pattern, other in _SHORT:
        text = pattern.sub(other, text)
    return text.split(": '")[0].split("; ")[0][:110].strip()


class Records:
    """Appends to a file, and reads what an earlier campaign appended."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, findings: Sequence[Finding], command: Callable[[Finding], str]) -> None:
        refused = Counter(reason(f.text) for f in findings if f.kind == "refused")
        lines = [json.dumps({
            "batch": [findings[0].seed, findings[-1].seed], "programs": len(findings),
            "calls": sum(f.calls for f in findings), "refused": dict(refused),
        })]
        lines += [
            json.dumps({"seed": f.seed, "kind": f.kind, "language": f.language, "text": f.text,
                        "reproduce": command(f)})
            for f in findings if f.kind in FAILURES
        ]
        with self.path.open("a") as file:
            file.write("\n".join(lines) + "\n")

    def append_mutated(self, seed: int, count: int, failures: Sequence[tuple[int, str, str]]) -> None:
        """What became of mutated artifacts; failures are seed, kind and text."""
        lines = [json.dumps({"mutated": seed, "count": count})]
        lines += [json.dumps({"seed": s, "kind": kind, "text": text, "mutated": True,
                              "reproduce": f"python -m tests.fuzz artifacts {s}"}) for s, kind, text in failures]
        with self.path.open("a") as file:
            file.write("\n".join(lines) + "\n")

    def read(self) -> Tally:
        """The sums of what is in the file."""
        tally = Tally()
        if not self.path.exists():
            return tally
        for line in self.path.read_text().splitlines():
            entry = json.loads(line)
            if "batch" in entry:
                tally.programs += entry["programs"]
                tally.calls += entry["calls"]
                tally.refusals.update(entry["refused"])
                tally.next_seed = max(tally.next_seed, entry["batch"][1] + 1)
            elif "count" in entry:
                tally.mutated += entry["count"]
            else:
                tally.failures[entry["kind"]] += 1
        return tally
