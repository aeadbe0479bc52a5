"""The head of the page: what it shows, when, where and by which command it was made, and what is measured in it."""

from __future__ import annotations

from pathlib import Path

from motet.artifact.reader import Artifact
from motet.tools.origin import Origin
from motet.tools.report.measured import MADE, Trace
from motet.tools.report.writing import safe
from motet.tools.show import show_bytes


def head_html(artifact: Artifact, made: Origin | None, trace: Trace | None, earlier: Trace | None) -> str:
    """A table: the file, the page, and each trace."""
    rows = [("file", f"{artifact.name}, {show_bytes(len(artifact.data))}, made by {artifact.manifest.producer}")]
    if made is not None:
        rows += [("page", f"{made.date}, on {made.machine}"), ("command", made.command)]
    for name, found in (("measured", trace), ("before", earlier)):
        if found is not None:
            rows.append((name, ", ".join([Path(found.path).name, *_said(found)])))
    body = "".join(f"<dt>{safe(name)}</dt><dd>{safe(value)}</dd>" for name, value in rows)
    return f'<dl class="facts origin">{body}</dl>'


def _said(trace: Trace) -> list[str]:
    """What a trace says of its making."""
    words = {"date": "{}", "machine": "on {}", "threads": "calls with {} threads", "command": "by {}"}
    return [words[key].format(trace.made[key]) for key in MADE if trace.made.get(key)]
