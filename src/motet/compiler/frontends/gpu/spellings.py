"""Completes text with launches so that upstream's parser accepts it.

    func.func @main(…) { gpu.launch_func @kernels::@add … }
      →  module attributes {gpu.container_module} {
           func.func @main(…) { … }
           gpu.binary @kernels […]                     kernels defined elsewhere
         }

A fragment of a function's body becomes a function; the values that it does not define are its arguments.
"""

from __future__ import annotations

import re

from motet.compiler.frontends.normaliser import Edit, Source

LAUNCH = "gpu.launch_func"
_CONTAINER = "gpu.container_module"
_TOP = frozenset({"func.func", "gpu.module", "gpu.binary", "memref.global", "llvm.func"})


def launch_edits(source: Source) -> list[Edit]:
    """Edits that mark the module as a container of kernels, and declare kernels that the text does not define."""
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
    before, after = f"module attributes {{{_CONTAINER}}} {{\n", f"\n{stubs}}}\n"
    if source.tokens[top].text not in _TOP:
        arguments = ", ".join(f"{name}: {kind}" for name, kind in _undefined(source, texts).items())
        before, after = f"{before}func.func @main({arguments}) {{\n", f"\nreturn\n}}{after}"
    return [Edit(start, start, before), Edit(end, end, after)]


def _undefined(source: Source, texts: list[str]) -> dict[str, str]:
    """The values that a fragment uses and does not define, with the types written after them; index, the type of
    sizes, if there is none."""
    values = [(index, text) for index, text in enumerate(texts) if text.startswith("%")]
    defined: set[str] = set()
    for index, _ in values:
        names = [texts[index]]
        while source.at(index + 1) == "," and source.at(index + 2).startswith("%"):
            index += 2
            names.append(texts[index])
        if source.at(index + 1) == "=":
            defined.update(names)
    found: dict[str, str] = {}
    for index, name in values:
        if name not in defined:
            typed = source.at(index + 1) == ":"
            written = source.slice(index + 2, source.type_end(index + 2)) if typed else ""
            found[name] = written or found.get(name, "index")
    return found


def _missing(source: Source, texts: list[str]) -> list[str]:
    """The modules of kernels that launches name and the text does not define."""
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
