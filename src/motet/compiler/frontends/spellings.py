"""Rewrites older MLIR syntax, which users' files contain and the pinned MLIR does not parse.

    bufferization.to_tensor %x restrict : memref<4xf32>
        →  bufferization.to_tensor %x restrict : memref<4xf32> to tensor<4xf32>
    linalg.matmul_transpose_b ins(…)
        →  linalg.matmul indexing_maps = […] ins(…)

A rule takes the source and the index of the token that names the operation, and returns edits. A new rule is one
function and one line in `RULES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from motet.compiler.frontends.gpu.spellings import launch_edits
from motet.compiler.frontends.iree.device_spellings import device_edits
from motet.compiler.frontends.normaliser import Edit, Edited, Source
from motet.compiler.frontends.shardy_spellings import constraint, end_of_computation, manual_computation, mesh

Rule = Callable[[Source, int], list[Edit]]


def modernise(source: Source) -> Edited:
    """Applies every rule at each occurrence of its name; `device_spellings.py` has the rules of devices.

    Raises CompileError, with the place, for syntax that is known but not supported.
    """
    edits = [*device_edits(source), *launch_edits(source)]
    for index, token in enumerate(source.tokens):
        if rule := RULES.get(token.text):
            edits += rule(source, index)
        elif token.text.startswith("{-#"):
            # `resources` reads the data; the parser does not need it.
            edits.append(Edit(token.start, token.end, ""))
    return Edited(source, edits)


def resources(source: Source) -> dict[str, bytes]:
    """The data of the builtin resources (`{-# dialect_resources: { builtin: { key: "0x…" } } #-}`) by key.

    Raises CompileError for data that is not hexadecimal.
    """
    found: dict[str, bytes] = {}
    for index, token in enumerate(source.tokens):
        if not token.text.startswith("{-#"):
            continue
        for match in re.finditer(r'(?:([\w$.]+)|"((?:[^"\\]|\\.)*)")\s*:\s*"0x([^"]*)"', token.text):
            try:
                # The first four bytes are the alignment.
                found[match[1] or match[2]] = bytes.fromhex(match[3])[4:]
            except ValueError:
                raise source.error(
                    f"resource {match[1] or match[2]}: its data is not hexadecimal", index
                ) from None
    return found


# -- helpers of the rules --------------------------------------------------------------------------


def _rename(name: str) -> Rule:
    def rule(source: Source, index: int) -> list[Edit]:
        token = source.tokens[index]
        return [Edit(token.start, token.end, name)]

    return rule


def _insert_after(source: Source, index: int, text: str) -> Edit:
    end = source.tokens[index].end
    return Edit(end, end, text)


def _colon(source: Source, index: int) -> int:
    """The `:` before the types of the operation whose name is at `index`, past its operands and
    attributes."""
    i = index + 1
    while source.at(i) != ":":
        if source.at(i) in ("(", "[", "{", "<"):
            i = source.group_end(i)
        elif i >= len(source.tokens) or source.at(i) in ("}", "=", ")"):
            raise source.error(f"{source.at(index)}: expected `:` and a type", index)
        else:
            i += 1
    return i


def _tensor_of(source: Source, begin: int, end: int) -> str:
    """The tensor type with the shape and element type of the memref type at tokens `[begin, end)`."""
    if source.at(begin) != "memref":
        raise source.error(f"expected a memref type, there is `{source.slice(begin, end)}`", begin)
    i, last = begin + 2, end - 1
    while i < last and source.at(i) != ",":  # after the comma: layout and memory space
        i = source.group_end(i) if source.at(i) in ("<", "(") else i + 1
    return f"tensor<{source.slice(begin + 2, i)}>"


# -- rules -----------------------------------------------------------------------------------------


def _to_tensor(source: Source, index: int) -> list[Edit]:
    """`… : memref<T>` had its tensor type implied."""
    begin = _colon(source, index) + 1
    end = source.type_end(begin)
    if source.at(end) == "to" or source.at(begin) != "memref":
        return []
    return [_insert_after(source, end - 1, f" to {_tensor_of(source, begin, end)}")]


def _to_memref(source: Source, index: int) -> list[Edit]:
    """`to_memref %t : memref<T>`, later `: tensor<T> to memref<T>`, became `to_buffer`."""
    edits = _rename("bufferization.to_buffer")(source, index)
    begin = _colon(source, index) + 1
    end = source.type_end(begin)
    if source.at(begin) == "memref" and source.at(end) != "to":
        edits.append(_insert_after(source, begin - 1, f" {_tensor_of(source, begin, end)} to"))
    return edits


def _elementwise(default: str) -> Rule:
    """`linalg.elemwise_unary {fun = #linalg.unary_fn<exp>} ins…` became `linalg.elementwise kind=…`."""

    def rule(source: Source, index: int) -> list[Edit]:
        start, end, kind = source.tokens[index].start, source.tokens[index].end, default
        if source.at(index + 1) == "{":
            close = source.group_end(index + 1)
            attributes = source.slice(index + 1, close)
            if match := re.search(r"\bfun\s*=\s*#linalg\.(?:unary|binary)_fn<(\w+)>", attributes):
                kind = match[1]
            if "cast_unsigned" in attributes:
                raise source.error(
                    f"{source.at(index)}: an unsigned cast is not supported; use linalg.generic", index
                )
            end = source.tokens[close - 1].end
        return [Edit(start, end, f"linalg.elementwise kind=#linalg.elementwise_kind<{kind}>")]

    return rule


def _matmul(name: str, dims: str, lhs: str, rhs: str, out: str) -> Rule:
    """A matmul variant became `linalg.matmul` / `batch_matmul` with indexing maps."""
    maps = ", ".join(f"affine_map<({dims}) -> ({results})>" for results in (lhs, rhs, out))
    return _rename(f"{name} indexing_maps = [{maps}]")


def _unsigned_matmul(name: str) -> Rule:
    return _rename(f"{name} {{cast = #linalg.type_fn<cast_unsigned>}}")


def _expand_shape(source: Source, index: int) -> list[Edit]:
    """`tensor.expand_shape %x [[0, 1]] : A into B` had its output shape implied by B."""
    groups = index + 2
    if source.at(groups) != "[":
        return []
    after = source.group_end(groups)
    if source.at(after) == "output_shape":
        return []
    colon = _colon(source, index)
    result = source.type_end(colon + 1) + 1
    shape = re.match(r"<\s*((?:\d+\s*x\s*)*)", source.slice(result + 1, source.type_end(result)))
    if shape is None or source.at(result + 2) == "?" or "?" in source.slice(result, source.type_end(result)):
        raise source.error(
            f"{source.at(index)}: its dynamic result needs `output_shape [...]` before the types", index
        )
    extents = re.findall(r"\d+", shape[1])
    return [_insert_after(source, after - 1, f" output_shape [{', '.join(extents)}]")]


def _init_tensor(source: Source, index: int) -> list[Edit]:
    """`linalg.init_tensor [4, %n] : T` became `tensor.empty(%n) : T`."""
    if source.at(index + 1) != "[":
        return []
    close = source.group_end(index + 1)
    sizes = [source.at(i) for i in range(index + 2, close - 1) if source.at(i).startswith("%")]
    return [
        Edit(source.tokens[index].start, source.tokens[close - 1].end, f"tensor.empty({', '.join(sizes)})")
    ]


def _old_func(source: Source, index: int) -> list[Edit]:
    """`func @f` and `func private @f` became `func.func`."""
    following = source.at(index + 1)
    return _rename("func.func")(source, index) if following.startswith("@") or following == "private" else []


def _affine_apply(source: Source, index: int) -> list[Edit]:
    """`affine.apply #map(%i)[%j]` with a loop's counter `%j`, which older MLIR accepted as a symbol: the symbols
    become dimensions, `affine.apply affine_map<(d0, s0) -> (d0 + s0)>(%i, %j)`."""
    written = index + 1
    begin = _map_at(source, written)
    if begin is None:
        return []
    operands = written + 1 if source.at(written) != "affine_map" else source.type_end(written)
    symbols = source.group_end(operands) if source.at(operands) == "(" else len(source.tokens)
    if source.at(symbols) != "[" or source.group_end(symbols) == symbols + 2:
        return []
    named = source.group_end(begin)
    results = source.group_end(named)
    body = source.slice(results, source.group_end(begin - 1) - 1)
    if source.at(named) != "[" or re.search(r"(?:mod|div|\*)\s*\(?-?\s*s\d|s\d+\s*\*\s*[ds]", body):
        return []  # not an affine map, or one without symbols
    lists = [(begin + 1, named - 1), (named + 1, results - 1)]
    values = [(operands + 1, symbols - 1), (symbols + 1, source.group_end(symbols) - 1)]
    names, all_values = (", ".join(filter(None, (source.slice(*part) for part in both))) for both in (lists, values))
    last = source.tokens[source.group_end(symbols) - 1].end
    return [Edit(source.tokens[written].start, last, f"affine_map<({names}) {body}>({all_values})")]


def _schedule(source: Source, index: int) -> list[Edit]:
    """`loop.schedule = {"i", "i#4" = {"unroll"}}` became text: MLIR's mappings do not keep the order of entries."""
    if source.at(index + 1) != "=" or source.at(index + 2) != "{":
        return []
    last = source.group_end(index + 2)
    words: list[str] = []
    for i in range(index + 2, last):
        text = source.at(i)
        if ":" not in (text, source.at(i - 1)):  # the type of a number
            words.append({"=": ":", "unit": "null"}.get(text, text))
    text = " ".join(words).replace("\\", "\\\\").replace('"', '\\"')
    return [Edit(source.tokens[index + 2].start, source.tokens[last - 1].end, f'"{text}"')]


def _map_at(source: Source, index: int) -> int | None:
    """The token `(` that begins the affine map at `index`, or the map of the alias there."""
    if source.at(index).startswith("#"):
        name = source.at(index)
        index = next(
            (i + 2 for i, token in enumerate(source.tokens) if token.text == name and source.at(i + 1) == "="),
            len(source.tokens),
        )
    return index + 2 if source.at(index) == "affine_map" and source.at(index + 2) == "(" else None


RULES: dict[str, Rule] = {
    "affine.apply": _affine_apply,
    "bufferization.to_tensor": _to_tensor,
    "bufferization.to_memref": _to_memref,
    '"bufferization.to_memref"': _rename('"bufferization.to_buffer"'),
    "linalg.elemwise_unary": _elementwise("exp"),
    "linalg.elemwise_binary": _elementwise("add"),
    "linalg.matmul_transpose_a": _matmul("linalg.matmul", "m, n, k", "k, m", "k, n", "m, n"),
    "linalg.matmul_transpose_b": _matmul("linalg.matmul", "m, n, k", "m, k", "n, k", "m, n"),
    "linalg.batch_matmul_transpose_a": _matmul(
        "linalg.batch_matmul", "b, m, n, k", "b, k, m", "b, k, n", "b, m, n"
    ),
    "linalg.batch_matmul_transpose_b": _matmul(
        "linalg.batch_matmul", "b, m, n, k", "b, m, k", "b, n, k", "b, m, n"
    ),
    "linalg.matmul_unsigned": _unsigned_matmul("linalg.matmul"),
    "linalg.init_tensor": _init_tensor,
    "tensor.expand_shape": _expand_shape,
    "tensor.pack": _rename("linalg.pack"),
    "tensor.unpack": _rename("linalg.unpack"),
    "loop.schedule": _schedule,
    "sdy.mesh": mesh,
    "sdy.sharding_constraint": constraint,
    "sdy.reshard": constraint,
    "sdy.manual_computation": manual_computation,
    "sdy.return": end_of_computation,
    "arith.maxf": _rename("arith.maximumf"),
    "arith.minf": _rename("arith.minimumf"),
    "func": _old_func,
}
