"""split-complexes: rewrites complex tensors as pairs of real ones, for which torch-mlir has more lowerings.

    %z = aten._fft_r2c(%x, …)        →   %re = …products…     %im = …products…
    %w = aten.mul(%z, %v)            →   %re' = …             %im' = …
    %m = aten.abs(%w)                →   %m = hypot(%re', %im')

Complex parameters are split as well. Inputs and results stay complex, as do operators without a rule: their operands
are joined, and their results split.
"""

# torch need not be installed, and much of it has no types.
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_map

from motet.errors import CompileError
from motet.pytorch import fourier
from motet.pytorch.complex_rules import ALIKE, REAL, RULES, ComplexPair, joined, on_both, on_whole
from motet.pytorch.inlining import Table, add_constant, inline
from motet.pytorch.places import called, find_place

_TRANSFORMS = (torch.ops.aten._fft_r2c.default, torch.ops.aten._fft_c2c.default, torch.ops.aten._fft_c2r.default)


def split_complexes(program: ExportedProgram, table: Table, name: str) -> None:
    """Rewrites a program with complex numbers in place. Raises CompileError; `name` is the program's in errors."""
    nodes = list(program.graph.nodes)
    if not any(_is_complex(value) for node in nodes for value in _values(node)):
        return
    pass_ = _Splitter(program, table, name, {}, {})
    for node in nodes:
        pass_.visit(node)
    program.graph.eliminate_dead_code()
    program.graph.lint()


def _values(node: fx.Node) -> list[Any]:
    found = node.meta.get("val")
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in REAL


@dataclass(frozen=True)
class _Called:
    """A rule as a function of positional and keyword arguments."""

    rule: Callable[..., Any]

    def __call__(self, arguments: Any, named: Any) -> Any:
        return self.rule(*arguments, **named)


@dataclass
class _Splitter:
    """`parts` maps each complex node to its real and imaginary part, or to those of each of its values."""

    program: ExportedProgram
    table: Table
    name: str
    parts: dict[fx.Node, Any]
    plans: dict[Any, Any]

    def visit(self, node: fx.Node) -> None:
        is_complex = any(map(_is_complex, _values(node)))
        if node.op == "placeholder":
            if is_complex:
                self._split_input(node)
        elif node.op == "output":
            node.args = (tuple(self._joined(node, each) for each in node.args[0]),)  # pyright: ignore
        elif not is_complex and not any(each in self.parts for each in node.all_input_nodes):
            pass
        elif node.target is torch.ops.aten._assert_tensor_metadata.default:
            self.program.graph.erase_node(node)
        elif node.target is operator.getitem:
            self.parts[node] = self.parts[node.args[0]][node.args[1]]  # pyright: ignore
        else:
            found = self._transform(node) if node.target in _TRANSFORMS else self._calculate(node)
            if is_complex:
                self.parts[node] = found
            else:  # a real tensor like a complex one: its imaginary part is not used
                node.replace_all_uses_with(found.re if isinstance(found, ComplexPair) else found)

    def _calculate(self, node: fx.Node) -> Any:
        name = str(node.target).removeprefix("aten.").removeprefix("prims.").split(".")[0]
        rule: Callable[..., Any] | None = RULES.get(name)
        if rule is None and name in ALIKE:
            rule = on_both(name, node.target)  # pyright: ignore[reportArgumentType]
        args, kwargs = tree_map(lambda each: self._given(each), (node.args, dict(node.kwargs)))
        kwargs = {key: value for key, value in kwargs.items() if key not in ("device", "layout", "pin_memory")}
        if rule is not None:
            try:
                return inline(node, _Called(rule), (args, kwargs), self.table)
            except (AttributeError, TypeError, ValueError, RuntimeError):
                pass  # the rule does not support this form of the operator
        if "linalg" in name:  # the lowering of some crashes
            raise CompileError(f"{called(node)} of complex numbers: this operator has no lowering for them; calculate "
                               "with their real and imaginary parts", find_place(node, self.name))
        return inline(node, _Called(on_whole(node.target)), (args, kwargs), self.table)  # pyright: ignore

    def _given(self, value: Any) -> Any:
        if isinstance(value, fx.Node) and value in self.parts:
            found = self.parts[value]
            return ComplexPair(*found) if isinstance(found, tuple) and len(found) == 2 else found
        return ComplexPair(value.real, value.imag) if isinstance(value, complex) else value

    def _transform(self, node: fx.Node) -> Any:
        source, dims, normalization, last = node.args
        given: Any = self.parts.get(source, (source, None))  # pyright: ignore
        value, result = source.meta["val"], node.meta["val"]  # pyright: ignore
        dims = [dim % value.ndim for dim in dims]  # pyright: ignore
        kind = REAL.get(value.dtype, value.dtype)
        is_half = node.target is _TRANSFORMS[2]
        lengths = [(result if is_half else value).shape[dim] for dim in dims]
        plans = [self._plan(length, kind) for length in lengths]
        forward = node.target is _TRANSFORMS[0] or (node.target is _TRANSFORMS[1] and bool(last))
        kept = result.shape[dims[-1]]

        def calculate(re: Any, im: Any, matrices: Any, extents: Any) -> Any:
            made = [fourier.dynamic_plan(length, kind) if plan is None else plan
                    for length, plan in zip(extents, matrices, strict=True)]
            scale = fourier.scale_of(normalization, extents)  # pyright: ignore
            if is_half:
                if len(dims) > 1:
                    re, im = fourier.transform(re, im, dims[:-1], made[:-1], False, 1.0)
                re, im = (fourier.mirrored(part, dims[-1], extents[-1], sign) for part, sign in ((re, 1), (im, -1)))
                return fourier.transform(re, im, dims[-1:], made[-1:], False, scale)[0]
            order = list(reversed(range(len(dims))))  # the last dimension has real numbers, which is cheaper
            found = fourier.transform(re, im, [dims[n] for n in order], [made[n] for n in order], forward, scale)
            return tuple(part.narrow(dims[-1], 0, kept) for part in found)

        return inline(node, calculate, (*given, plans, lengths), self.table)

    def _plan(self, length: Any, dtype: Any) -> Any:
        if not isinstance(length, int):
            return None
        if (length, dtype) not in self.plans:
            self.plans[length, dtype] = fourier.transform_plan(
                length, lambda array: add_constant(self.program, torch.from_numpy(array).to(dtype), "fourier")
            )
        return self.plans[length, dtype]

    def _split_input(self, node: fx.Node) -> None:
        graph, signature = self.program.graph, self.program.graph_signature
        spec = next(each for each in signature.input_specs if each.arg.name == node.name)
        if spec.kind == InputKind.USER_INPUT:
            anchor = next(each for each in graph.nodes if each.op != "placeholder")
            self.parts[node] = inline(anchor, lambda x: (torch.real(x), torch.imag(x)), (node,), {})
            return
        held = self.program.state_dict if spec.target in self.program.state_dict else self.program.constants
        value = held[spec.target].detach()  # pyright: ignore
        self.parts[node] = tuple(
            add_constant(self.program, part.contiguous(), "part") for part in (value.real, value.imag)
        )

    def _joined(self, output: fx.Node, each: Any) -> Any:
        if each not in self.parts:
            return each
        return inline(output, lambda re, im: joined(ComplexPair(re, im)), self.parts[each], {})
