"""Children that try programs, and what their ends mean: a crash or a hang is a result with its seed."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 150.0  # seconds without a word before a child counts as hanging
_BATCHES = 30  # of one child, which is then replaced: compilers leave something behind
_BEFORE = 2  # lines that say why a signal came: `terminate called …` and `what(): …`
_SEED = re.compile(r"^(?:wrong call (\d+)|\w+(?: \d+)? \[(\d+)\])|^call .* \[(\d+)\]$")


@dataclass
class Finding:
    """How a program went: `ok`, `refused`, `wrong`, `error`, `crash` or `hang`."""

    seed: int
    kind: str
    text: str = ""
    calls: int = 0
    language: str = ""
    source: str = ""  # the kind of program, of `tests.fuzz.kinds`; "" for graphs


class Ended(Exception):
    """A child that is no more: `kind` is crash or hang, `doing` what it had begun."""

    def __init__(self, kind: str, text: str, doing: str) -> None:
        super().__init__(f"{kind}: {text}; in: {doing}")
        self.kind = kind
        self.text = text
        self.doing = doing


@dataclass
class Child:
    """A process of `tests.fuzz.child`, started when it is first asked, and again after its end."""

    known: Sequence[str] = ()
    patience: float = PATIENCE
    target: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _log: Any = None
    _asked: int = 0
    _buffer: bytes = field(default=b"")

    def try_seeds(self, seeds: Sequence[int], source: str = "") -> list[Finding]:
        """How the programs of these seeds went, all of one batch; those that end the process are found by halves.
        `source` is a kind of `tests.fuzz.kinds`."""
        return self._try({"seeds": list(seeds), "graphs": [], "source": source}, "seeds", list(seeds))

    def try_graph(self, graph: Mapping[str, Any]) -> Finding:
        """How one program went."""
        return self._try({"seeds": [], "graphs": [graph], "source": ""}, "graphs", [graph["seed"]])[0]

    def _try(self, job: dict[str, Any], key: str, seeds: Sequence[int]) -> list[Finding]:
        try:
            answer = self.ask({**job, "target": self.target, "known": list(self.known)})
        except Ended as end:
            if len(seeds) == 1:
                return [Finding(seeds[0], end.kind, f"{end.text}; in: {end.doing[:200]}", source=job["source"])]
            named = _SEED.match(end.doing)
            guilty = int(next(filter(None, named.groups()))) if named else None
            if guilty in seeds:
                parts = [[s for s in seeds if s < guilty], [guilty], [s for s in seeds if s > guilty]]
            else:
                parts = [list(seeds[: len(seeds) // 2]), list(seeds[len(seeds) // 2 :])]
            found = [one for part in parts if part for one in self._try({**job, key: part}, key, part)]
            if not any(one.kind == end.kind for one in found):
                text = f"only together with {list(seeds)}: {end.text}; in: {end.doing[:200]}"
                found[0].kind, found[0].text = end.kind, text
            return found
        return [
            Finding(seed, o["kind"], o["text"], o["calls"], o["language"], job["source"])
            for seed, o in zip(seeds, answer["outcomes"], strict=True)
        ]

    def ask(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """A child's answer. Raises Ended where it dies or says nothing for too long."""
        if self._asked >= _BATCHES:
            self.close()
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        self._asked += 1
        doing = "begin"
        try:
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
            while True:
                message = json.loads(self._line(process.stdout.fileno()))
                if "outcomes" in message:
                    return message
                doing = message["doing"]
        except TimeoutError:
            self.close()
            raise Ended("hang", f"nothing for {self.patience:.0f} s", doing) from None
        except (EOFError, BrokenPipeError):
            status = process.wait()
            last = self._last_words()
            self.close()
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise Ended("crash", f"{how}{f': {last}' if last else ''}", doing) from None

    def _start(self) -> subprocess.Popen[bytes]:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        self._buffer = b""
        self._asked = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            cwd=ROOT, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        )
        return self._process

    def _line(self, descriptor: int) -> bytes:
        until = time.monotonic() + self.patience
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError
            more = os.read(descriptor, 1 << 16)
            if not more:
                raise EOFError
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _last_words(self) -> str:
        """The line of a child's errors that says most, and what was written before Python's own of a signal: of glibc,
        LLVM or C++."""
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        telling = [n for n, line in enumerate(lines) if re.search(r"Assert|error|Error|terminate|Fatal", line)]
        last = telling[-1] if telling else len(lines) - 1
        before = _BEFORE if lines and lines[last].startswith("Fatal Python error") else 0
        return "; ".join(lines[max(0, last - before) : last + 1])[-300:]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._log.close()
        self._process = None
