"""Dialects whose operations are seen as plain ones: by name, operands, attributes and regions.

The wheel loads a dialect's classes for operations as soon as one of its operations is looked at; those of the
modules here take longer to load than many programs to compile. It looks here first (see `_mlir`). Who needs their
builders imports them from `_mlir`, which loads the wheel's.
"""
