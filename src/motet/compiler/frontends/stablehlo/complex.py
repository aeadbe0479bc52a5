"""Writes StableHLO's complex constants, and bitcasts of complex numbers, with real and imaginary parts.

    stablehlo.constant dense<(1.0, 2.0)> : tensor<4xcomplex<f32>>   →   %x = stablehlo.constant dense<1.0>
                                                                        %y = stablehlo.constant dense<2.0>
                                                                        stablehlo.complex %x, %y

    stablehlo.bitcast_convert %z : (tensor<4xcomplex<f64>>)         →   each part's two words, as complex numbers,
                                   -> tensor<4x2xcomplex<f32>>          the real part's first

The bindings of the torch-mlir wheel fail when they are asked for a dense attribute of complex elements. Upstream's
lowering of bitcast_convert crashes for complex numbers.
"""

from __future__ import annotations

from motet.compiler.frontends.complex_constants import constant_parts
from motet.compiler.frontends.stablehlo.writing import StablehloText, V, require_static
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations


def split_complex_constants(module: ir.Module) -> None:
    """Rewrites constants in place, including those in bodies of loops and reductions."""
    for op in find_operations(module, "stablehlo.constant"):
        kind = ir.RankedTensorType(op.results[0].type)
        if isinstance(kind.element_type, ir.ComplexType):
            joined = ir.Operation.create(
                "stablehlo.complex", results=[kind], operands=constant_parts(op), loc=op.location,
                ip=ir.InsertionPoint(op),
            )
            op.results[0].replace_all_uses_with(joined.result)
            op.erase()


def split_complex_bits(module: ir.Module) -> None:
    """Rewrites bitcast_convert between complex types in place. Raises CompileError if the width changes and an extent
    is dynamic."""
    for op in find_operations(module, "stablehlo.bitcast_convert"):
        given, wanted = (ir.RankedTensorType(value.type) for value in (op.operands[0], op.results[0]))
        if not isinstance(given.element_type, ir.ComplexType):
            continue
        if given.element_type == wanted.element_type:
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
            continue
        require_static(op)
        w = StablehloText(op)
        w.replace([(_halves if wanted.rank > given.rank else _wholes)(w, w.operands[0])])


def _halves(w: StablehloText, number: V) -> V:
    """complex<f64> of shape [...] as complex<f32> of [..., 2]: the halves of its real part, and of its imaginary
    part."""
    shape = (*number.shape, 2)
    numbers: list[V] = []
    for name in ("real", "imag"):
        words = _bits(w, w.unary(name, number, "f64"), shape, "f32")
        parts = [w.along(words, len(shape) - 1, at, at + 1) for at in (0, 1)]
        numbers.append(_complex(w, *parts))
    return w.concatenate(numbers, len(shape) - 1)


def _wholes(w: StablehloText, numbers: V) -> V:
    """complex<f32> of shape [..., 2] as complex<f64> of [...]."""
    axis, shape = len(numbers.shape) - 1, numbers.shape[:-1]
    parts: list[V] = []
    for at in (0, 1):
        number = w.along(numbers, axis, at, at + 1)
        words = w.concatenate([w.unary(name, number, "f32") for name in ("real", "imag")], axis)
        parts.append(_bits(w, words, shape, "f64"))
    return _complex(w, *parts)


def _bits(w: StablehloText, value: V, shape: tuple[int, ...], element: str) -> V:
    result = V("", shape, element).kind
    return w.line(f"stablehlo.bitcast_convert {value.name} : ({value.kind}) -> {result}", shape, element)


def _complex(w: StablehloText, real: V, imaginary: V) -> V:
    element = f"complex<{real.element}>"
    kind = V("", real.shape, element).kind
    return w.line(f"stablehlo.complex {real.name}, {imaginary.name} : {kind}", real.shape, element)
