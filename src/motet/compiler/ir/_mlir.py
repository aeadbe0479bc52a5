"""The only import of the torch-mlir wheel: all other modules import MLIR from here, so that the wheel can be replaced.

The builders of dialects (`arith`, `linalg`, …) are loaded when they are imported from here: most compiles rewrite
operations by name, and need no builders except `func`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_mlir import ir
from torch_mlir._mlir_libs import _mlir as _bindings  # pyright: ignore[reportAttributeAccessIssue]
from torch_mlir.dialects import func
from torch_mlir.passmanager import PassManager

from motet.on_use import imported_on_use

if TYPE_CHECKING:
    from torch_mlir.dialects import arith, linalg
    from torch_mlir.dialects.transform import interpreter

__all__ = [
    "PassManager", "arith", "execution_engine", "func", "fx_importer", "indexing_maps", "interpreter", "ir", "linalg",
    "new_context", "onnx_importer", "register_stablehlo", "register_torch_dialect", "run_pipeline", "to_llvm_ir",
]

_DIALECTS = "torch_mlir.dialects"

_bindings.globals.dialect_search_modules = ["motet.compiler.ir.views", _DIALECTS]


if not TYPE_CHECKING:
    __getattr__ = imported_on_use("motet.compiler.ir._mlir", {
        "arith": f"{_DIALECTS}.arith", "interpreter": f"{_DIALECTS}.transform.interpreter",
        "linalg": f"{_DIALECTS}.linalg",
    })  # fmt: skip

# Dialects of which operations are created by name. The others are loaded when text contains them or a pass needs them:
# loading all takes milliseconds, and makes canonicalisation collect the patterns of all.
_CREATED = (
    "affine", "arith", "bufferization", "cf", "complex", "func", "gpu", "index", "linalg", "math", "memref",
    "ml_program", "scf", "shape", "tensor", "ub", "vector",
)


def new_context() -> ir.Context:
    """A context with the dialects of which operations are created by name, on one thread."""
    context = ir.Context(load_on_create_dialects=())
    context.enable_multithreading(False)  # the compiler runs in forked processes, and forks others
    for name in _CREATED:
        context.get_dialect_descriptor(name)
    return context


def run_pipeline(module: ir.Module, pipeline: str, verify_each: bool = True) -> None:
    """Runs a textual pass pipeline (without `builtin.module(...)`) on `module`, in place. The module is verified after
    each pass, or once after all: a pass that gets what another has made invalid may crash.

    Raises `ir.MLIRError` with the diagnostics if a pass fails.
    """
    passes = PassManager.parse(f"builtin.module({pipeline})", context=module.context)
    passes.enable_verifier(verify_each)
    passes.run(module.operation)
    if not verify_each:
        module.operation.verify()


def to_llvm_ir(module: ir.Module) -> str:
    """The text of a module in the LLVM dialect, in the wheel's LLVM version."""
    from torch_mlir._mlir_libs._mlirDialectsLLVM import translate_module_to_llvmir

    return translate_module_to_llvmir(module.operation)


def indexing_maps(operation: ir.Operation) -> Any:
    """The indexing maps of an operation of `linalg`, named ones included; None if it has none."""
    from torch_mlir._mlir_libs._mlirDialectsLinalg import get_indexing_maps

    return get_indexing_maps(operation)


def execution_engine(module: ir.Module) -> Any:
    """The wheel's JIT compiler, with optimisation for this machine, on a module in the LLVM dialect."""
    from torch_mlir.execution_engine import ExecutionEngine

    return ExecutionEngine(module, opt_level=3)


def onnx_importer() -> Any:
    """The wheel's ONNX importer; needs the package `onnx`."""
    from torch_mlir.extras import onnx_importer

    return onnx_importer


def fx_importer() -> Any:
    """The wheel's importer of PyTorch's graphs; needs the package `torch`."""
    from torch_mlir.extras import fx_importer

    return fx_importer


def register_torch_dialect(context: ir.Context) -> None:
    """Registers the `torch` dialect, through which imported models are lowered, with `context`."""
    from torch_mlir.dialects import torch

    torch.register_dialect(context)


def register_stablehlo(context: ir.Context) -> None:
    """Registers the `stablehlo`, `chlo` and `tm_tensor` dialects with `context`, and their passes with the process."""
    # The torch library is imported for its passes only: two of them load dialects that have no binding.
    from torch_mlir._mlir_libs import _stablehlo, _torchMlir  # noqa: F401  # pyright: ignore

    _stablehlo.register_stablehlo_passes()
    _stablehlo.register_dialect(context)
    empty = ir.Module.parse("", context=context)
    run_pipeline(empty, "func.func(convert-torch-to-stablehlo,convert-torch-to-tmtensor)")
