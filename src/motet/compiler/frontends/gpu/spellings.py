"""Text with launches that lacks what upstream's parser asks for around them.

    func.func @main(…) { gpu.launch_func @kernels::@add … }
      →  module attributes {gpu.container_module} {
           func.func @main(…) { … }
           gpu.binary @kernels […]                     kernels that are elsewhere
         }
"""

from __future__ import annotations

import re

from motet.compiler.frontends.normaliser import Edit, Source

LAUNCH = "gpu.launch_func"
_CONTAINER = "gpu.container_module"
_TOP = frozenset({"func.func", "gpu.module", "gpu.binary", "memref.global", "llvm.func"})


def launch_edits(source: Source) -> list[Edit]:
    """Edits that mark the module as one with kernels, and name kernels that the text does not have."""
    texts = [token.text for token in source.tokens]
    if LAUNCH not in texts:
        return []
    missing = _missing(source, texts)
    stubs = "".join(f'gpu.binary {name} [#gpu.object<#nvvm.target, "">]\n' for name in missing)
    module = texts.index("module") if "module" in texts else -1
    top = next((i for i, text in enumerate(texts) if text in _TOP), 0)
    if 0 <= module < top:
        return _marked(source, module, stubs)
    start, end = source.tokens[top].start, len(source.text)
    return [
        Edit(start, start, f"module attributes {{{_CONTAINER}}} {{\n"), Edit(end, end, f"\n{stubs}}}\n"),
    ]  # fmt: skip


def _missing(source: Source, texts: list[str]) -> list[str]:
    """Modules of kernels that launches name and the text does not have."""
    there = {source.at(i + 1) for i, text in enumerate(texts) if text in ("gpu.module", "gpu.binary")}
    named: list[str] = []
    for index, text in enumerate(texts):
        if text == LAUNCH:
            symbol = next((i for i in range(index, len(texts) - 1) if texts[i].startswith("@")), index)
            if texts[symbol].startswith("@") and texts[symbol] not in (*there, *named):
                named.append(texts[symbol])
    return named


def _marked(source: Source, module: int, stubs: str) -> list[Edit]:
    body = module + 1
    if source.at(body).startswith("@"):
        body += 1
    edits: list[Edit] = []
    if source.at(body) == "attributes":
        close = source.group_end(body + 1)
        written = source.slice(body + 1, close)
        if not re.search(rf"(?<![\w.]){re.escape(_CONTAINER)}(?![\w.])", written):
            end = source.tokens[body + 1].end
            edits.append(Edit(end, end, f"{_CONTAINER}{', ' if close > body + 3 else ''}"))
        body = close
    else:
        start = source.tokens[body].start
        edits.append(Edit(start, start, f"attributes {{{_CONTAINER}}} "))
    if stubs:
        last = source.tokens[source.group_end(body) - 1].start
        edits.append(Edit(last, last, f"\n{stubs}"))
    return edits
