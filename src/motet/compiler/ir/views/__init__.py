"""Empty dialect modules, which make operations appear as plain ones: by name, operands, attributes and regions.

The wheel loads a dialect's operation classes as soon as one of its operations is accessed; for the dialects listed here
that takes longer than compiling many programs. The wheel searches this package first (see `_mlir`). Modules that need
the builders import them from `_mlir`, which loads the wheel's.
"""
