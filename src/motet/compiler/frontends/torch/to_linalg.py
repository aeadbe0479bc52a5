"""torch-mlir's lowering of the dialect `torch` to linalg, which its pipeline
torch-backend-to-linalg-on-tensors-backend-pipeline runs too, with one pass more: a branch that only chooses between
tensors is canonicalised to an `arith.select` of them, which the pipeline's verifier refuses.
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir, run_pipeline

_CONVERT = (
    "func.func(torch-restructure-non-constant-axes,torch-fuse-quantized-ops,convert-torch-to-tmtensor,canonicalize,"
    "convert-torch-to-linalg)"
)
_FINISH = (
    "func.func(canonicalize,convert-torch-to-scf,convert-torch-to-arith,convert-torch-to-tensor),"
    "convert-torch-conversion-to-mlprogram,"
    "func.func(memref-expand,canonicalize,resolve-shaped-type-result-dims,cse),"
    "torch-func-backend-type-conversion,func.func(canonicalize,torch-finalizing-backend-type-conversion),"
    "convert-elementwise-to-linalg,torch-verify-linalg-on-tensors-backend-contract,canonicalize,cse"
)


def to_linalg(module: ir.Module) -> None:
    """Lowers the module in place. It is verified after the conversion that makes most of the operations, and at the
    end: after each pass, that would take most of the time. Raises MLIRError."""
    run_pipeline(module, _CONVERT, verify_each=False)
    run_pipeline(module, _FINISH, verify_each=False)
