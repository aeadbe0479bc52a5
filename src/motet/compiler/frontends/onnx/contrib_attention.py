"""Writes attention operators of the domain `com.microsoft` with products and Softmax.

    Attention(x, weights, bias)      →  heads of x · weights + bias, then as MultiHeadAttention
    MultiHeadAttention(q, k, v)      →  Softmax(q · kᵀ · scale + masks) · v by heads
    GroupQueryAttention(q, k, v, …)  →  the same, causal, after cached keys; several query heads share one of k and v
    RotaryEmbedding(x, positions)    →  x · cos + rotated x · sin

Masks are added as `mask_filter_value`; causal masking adds the lowest finite number.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from motet.compiler.frontends.onnx.contrib import done, given, number, transposed, wanted
from motet.compiler.frontends.onnx.ml import dtype_of
from motet.compiler.frontends.onnx.simplify import attribute
from motet.compiler.frontends.onnx.writing import ModelFacts, NodeWriter, Rule, refused

if TYPE_CHECKING:
    import onnx

_TO_THE_END = np.iinfo(np.int64).max


def _heads(w: NodeWriter, value: str, heads: int) -> str:
    """Splits [batch, sequence, features] into heads: [batch, heads, sequence, head size]."""
    return w.add("Transpose", w.reshape(value, [0, 0, heads, -1]), perm=[0, 2, 1, 3])


def _joined(w: NodeWriter, value: str) -> str:
    return w.reshape(w.add("Transpose", value, perm=[0, 2, 1, 3]), [0, 0, -1])


def _count(w: NodeWriter, extent: str) -> str:
    """0, 1, …, `extent` - 1."""
    zero, one = (w.constant(np.array(item, np.int64), "number") for item in (0, 1))
    return w.add("Range", zero, extent, one)


@dataclass
class _Attention:
    """Queries, keys and values by heads; the masks and biases added to their scores, and the scale."""

    query: str
    key: str
    value: str
    bias: list[str]
    scale: float
    like: str  # a value of the operands' type

    def result(self, w: NodeWriter, softcap: float = 0.0) -> str:
        scores = w.add("MatMul", self.query, transposed(w, self.key, 4))
        if self.scale:
            scores = w.add("Mul", scores, number(w, self.scale, self.like))
        else:
            size = w.cast(w.extent(self.query, 3), w.facts.types[self.like])
            scores = w.add("Div", scores, w.add("Sqrt", size))
        if softcap:
            cap = number(w, softcap, self.like)
            scores = w.add("Mul", w.add("Tanh", w.add("Div", scores, cap)), cap)
        for each in self.bias:
            scores = w.add("Add", scores, each)
        return w.add("MatMul", w.add("Softmax", scores, axis=-1), self.value)


def _lowest(w: NodeWriter, like: str) -> str:
    lowest = -65504.0 if dtype_of(w.facts.types[like]).itemsize == 2 else -3.4e38
    return number(w, lowest, like)


def _closed(w: NodeWriter, open_: str, value: str, like: str) -> str:
    """The term added to scores: 0 where `open_` holds, else `value`."""
    return w.add("Where", open_, number(w, 0.0, like), value)


def _causal(w: NodeWriter, query: str, key: str, like: str) -> str:
    """The causal mask: each query attends to the keys up to its own; the last query's is the last key."""
    length, total = w.extent(query, 2), w.extent(key, 2)
    own = w.over("Unsqueeze", w.add("Add", _count(w, length), w.add("Sub", total, length)), [1])
    return _closed(w, w.add("Not", w.add("Greater", _count(w, total), own)), _lowest(w, like), like)


def _mask(w: NodeWriter, mask: str, key: str, like: str) -> str | None:
    """A mask that is 0 where attention is masked, or that holds each row's number of keys; None if its rank is
    unknown."""
    rank = w.facts.rank(mask)
    if rank is None:
        return None
    filled = number(w, attribute(w.node, "mask_filter_value", -10000.0), like)
    if rank == 1:
        extents = w.facts.shapes.get(mask), w.facts.shapes.get(w.node.input[0])
        if extents[0] is not None and extents[1] is not None and extents[0] != extents[1][:1]:
            raise refused(w.node, w.facts, "with a mask of starts and ends", "lengths, or a mask of every key")
        counted = w.cast(_count(w, w.extent(key, 2)), w.facts.types[mask])
        open_ = w.add("Less", counted, w.over("Unsqueeze", mask, [1]))
        return _closed(w, w.over("Unsqueeze", open_, [1, 2]), filled, like)
    if rank not in (2, 3):
        raise refused(w.node, w.facts, f"with a mask of {rank} axes", "one of 1, 2 or 3")
    open_ = w.cast(w.over("Unsqueeze", mask, [1, 2] if rank == 2 else [1]), 9)
    return _closed(w, open_, filled, like)


def _biases(w: NodeWriter, mask: str, query: str, key: str, like: str) -> list[str] | None:
    """What is added to the scores: input 5, the mask, and one that hides later keys; None where the mask's rank is not
    known."""
    found = [given(w.node, 5)] if given(w.node, 5) else []
    if mask:
        if (added := _mask(w, mask, key, like)) is None:
            return None
        found.append(added)
    if attribute(w.node, "unidirectional", 0):
        found.append(_causal(w, query, key, like))
    return found


def _after(w: NodeWriter, past: str, value: str) -> str:
    return w.add("Concat", past, value, axis=2) if past else value


def _attention(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    heads, weights, mask = attribute(node, "num_heads", 0), facts.shapes.get(node.input[1]), given(node, 3)
    if weights is None or facts.rank(node.input[0]) is None:
        return None
    if attribute(node, "do_rotary", 0) or given(node, 6):
        raise refused(node, facts, "with do_rotary or a shared buffer of the past", "RotaryEmbedding, and past tensors")
    w, like = NodeWriter(node, facts), node.input[0]
    sizes = list(attribute(node, "qkv_hidden_sizes", None) or [weights[1] // 3] * 3)
    product = w.add("MatMul", node.input[0], node.input[1])
    if given(node, 2):
        product = w.add("Add", product, node.input[2])
    ends = np.cumsum([0, *sizes]).tolist()
    query, key, value = (
        _heads(w, w.slice(product, 2, begin, end), heads) for begin, end in pairwise(ends)
    )
    present = ""
    if past := given(node, 4):
        parts = [w.over("Squeeze", w.slice(past, 0, place, place + 1), [0]) for place in range(2)]
        key, value = _after(w, parts[0], key), _after(w, parts[1], value)
    if wanted(node, 1):
        present = w.add("Concat", *(w.over("Unsqueeze", each, [0]) for each in (key, value)), axis=0)
    bias = _biases(w, mask, query, key, like)
    if bias is None:
        return None
    scale = attribute(node, "scale", 0.0) or (sizes[0] // heads) ** -0.5
    result = _Attention(query, key, value, bias, scale, like).result(w)
    return done(w, {0: _joined(w, result), 1: present})


def _several_heads(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    heads, like = attribute(node, "num_heads", 0), node.input[0]
    names = [given(node, place) for place in range(3)]
    found = [facts.rank(name) if name else 0 for name in names]
    if None in found or (given(node, 3) and given(node, 3) not in facts.shapes):
        return None
    if found[0] != 3 or found[1] not in (3, 4) or given(node, 8):
        raise refused(node, facts, f"of operands of {found} axes, or with a shared buffer", "3 of 3 axes, not packed")
    w = NodeWriter(node, facts)
    if given(node, 3):
        names = _biased(w, names, [rank == 3 for rank in found])
    query, key, value = (
        name if rank == 4 else _heads(w, name, heads) for name, rank in zip(names, found, strict=True)
    )
    key, value = _after(w, given(node, 6), key), _after(w, given(node, 7), value)
    bias = _biases(w, given(node, 4), query, key, like)
    if bias is None:
        return None
    result = _Attention(query, key, value, bias, attribute(node, "scale", 0.0), like).result(w)
    return done(w, {0: _joined(w, result), 1: key, 2: value})


def _biased(w: NodeWriter, names: list[str], plain: list[bool]) -> list[str]:
    """Adds the slices of the bias to queries, keys and values, except to cached ones, which already include it."""
    extents, total = [w.facts.extents(name) for name in names], w.facts.shapes[w.node.input[3]][0]
    size = (extents[0] or [None])[-1]
    if size is None:
        raise refused(w.node, w.facts, "with a bias, over features that only a call knows", "known ones")
    ends = [0, size, 2 * size, total]
    return [
        w.add("Add", name, w.slice(w.node.input[3], 0, begin, end)) if is_plain else name
        for name, is_plain, begin, end in zip(names, plain, ends, ends[1:], strict=False)
    ]


# -- rotation -------------------------------------------------------------------------------------------


def _rotated(w: NodeWriter, value: str, places: str, tables: tuple[str, str], *, interleaved: bool) -> str:
    """Rotates [batch, heads, sequence, head size] by the angles at `places`, [batch, sequence]. Elements beyond twice
    the tables' width are unchanged."""
    shape = w.facts.shapes.get(tables[0])
    if shape is None:
        raise refused(w.node, w.facts, "with tables of unknown width", "known ones")
    half = shape[1]
    cos, sin = (w.over("Unsqueeze", w.add("Gather", table, places, axis=0), [1]) for table in tables)
    turned, rest = w.slice(value, 3, 0, 2 * half), w.slice(value, 3, 2 * half, _TO_THE_END)
    if interleaved:
        first, second = (w.slice(turned, 3, start, _TO_THE_END, 2) for start in (0, 1))
    else:
        first, second = w.slice(turned, 3, 0, half), w.slice(turned, 3, half, _TO_THE_END)
    real = w.add("Sub", w.add("Mul", first, cos), w.add("Mul", second, sin))
    imaginary = w.add("Add", w.add("Mul", first, sin), w.add("Mul", second, cos))
    if interleaved:
        pairs = [w.over("Unsqueeze", part, [4]) for part in (real, imaginary)]
        joined = w.reshape(w.add("Concat", *pairs, axis=4), [0, 0, 0, 2 * half])
    else:
        joined = w.add("Concat", real, imaginary, axis=3)
    return w.add("Concat", joined, rest, axis=3)


def _rotary(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    value, places, *tables = node.input[:4]
    rank, of_places = facts.rank(value), facts.rank(places)
    if rank is None or of_places is None or tables[0] not in facts.shapes:
        return None
    w, heads = NodeWriter(node, facts), attribute(node, "num_heads", 0)
    if rank == 3 and not heads:
        size = attribute(node, "rotary_embedding_dim", 0)
        width = (facts.extents(value) or [None])[-1]
        if size or width is None:
            raise refused(node, facts, "without num_heads", "num_heads, or operands of 4 axes")
        heads = width // (2 * facts.shapes[tables[0]][1])
    split = _heads(w, value, heads) if rank == 3 else value
    if facts.shapes.get(places) == (1,) or of_places < 2:  # the first position, the same for all rows
        counted = w.add("Add", _count(w, w.extent(split, 2)), w.cast(w.reshape(places, [-1]), 7))
        places = w.over("Unsqueeze", counted, [0])
    turned = _rotated(w, split, places, (tables[0], tables[1]), interleaved=bool(attribute(node, "interleaved", 0)))
    return done(w, {0: _joined(w, turned) if rank == 3 else turned})


# -- groups ---------------------------------------------------------------------------------------------


def _groups(node: onnx.NodeProto, facts: ModelFacts) -> list[onnx.NodeProto] | None:
    """GroupQueryAttention. `seqlens_k` is the index of the last key of each row; the new keys follow the past."""
    heads, own = attribute(node, "num_heads", 0), attribute(node, "kv_num_heads", 0)
    query, key, value = node.input[:3]
    if facts.rank(query) is None or (attribute(node, "do_rotary", 0) and given(node, 7) not in facts.shapes):
        return None
    if not key or given(node, 11) or attribute(node, "smooth_softmax", 0):
        raise refused(node, facts, "of packed operands, with sinks or smooth_softmax", "queries, keys and values apart")
    w, like = NodeWriter(node, facts), query
    query, key, value = (_heads(w, name, count) for name, count in ((query, heads), (key, own), (value, own)))
    last = w.over("Unsqueeze", w.cast(w.reshape(node.input[5], [-1]), 7), [1])  # [batch, 1]
    past, length = given(node, 3), w.extent(query, 2)
    places = _places(w, last, past, length)
    if attribute(node, "do_rotary", 0):
        at, interleaved = given(node, 9) or places, bool(attribute(node, "rotary_interleaved", 0))
        tables = node.input[7], node.input[8]
        query, key = (_rotated(w, each, at, tables, interleaved=interleaved) for each in (query, key))
    key, value = _after(w, past, key), _after(w, given(node, 4), value)
    bias = [_window(w, places, key, like)] + ([given(node, 10)] if given(node, 10) else [])
    keys, values = (_repeated(w, each, own, heads // own) for each in (key, value))
    scale, softcap = attribute(node, "scale", 0.0), attribute(node, "softcap", 0.0)
    result = _Attention(query, keys, values, bias, scale, like).result(w, softcap)
    return done(w, {0: _joined(w, result), 1: key, 2: value})


def _places(w: NodeWriter, last: str, past: str, length: str) -> str:
    """The key position of each query, [batch, sequence]; a prompt, padded at its end, begins at 0."""
    counted = w.over("Unsqueeze", _count(w, length), [0])
    if not past:
        return w.add("Add", counted, w.add("Mul", last, w.constant(np.array(0, np.int64), "zero")))
    before, zero = w.extent(past, 2), w.constant(np.array(0, np.int64), "zero")
    newest = w.add("Sub", w.add("Add", before, length), w.constant(np.array(1, np.int64), "one"))
    differs = w.add("Abs", w.add("Sub", last, newest))
    whole = w.add("Equal", w.over("ReduceSum", differs, [0, 1], keepdims=0), zero)
    said = "seqlens_k of every row must be the number of the last key: the past has keys only, as many for every row"
    fine = w.required(whole, said)
    behind = w.add("Add", w.add("Mul", last, zero), w.add("Where", fine, before, zero))
    return w.add("Add", counted, behind)


def _window(w: NodeWriter, places: str, key: str, like: str) -> str:
    counted = _count(w, w.extent(key, 2))
    own = w.over("Unsqueeze", places, [1, 3])
    open_ = w.add("Not", w.add("Greater", counted, own))
    width = attribute(w.node, "local_window_size", -1)
    if width >= 0:
        first = w.add("Sub", own, w.constant(np.array(width, np.int64), "width"))
        open_ = w.add("And", open_, w.add("Greater", counted, first))
    return _closed(w, open_, _lowest(w, like), like)


def _repeated(w: NodeWriter, value: str, own: int, times: int) -> str:
    """Repeats each of `own` heads `times` times, once for each query head that uses it."""
    if times == 1:
        return value
    heads = np.repeat(np.arange(own, dtype=np.int64), times)
    return w.add("Gather", value, w.constant(heads, "heads"), axis=1)


RULES: dict[str, Rule] = {
    "Attention": _attention, "GroupQueryAttention": _groups, "MultiHeadAttention": _several_heads,
    "RotaryEmbedding": _rotary,
}  # fmt: skip
