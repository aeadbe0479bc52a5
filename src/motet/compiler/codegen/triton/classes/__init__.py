"""The classes of GPU launches, one module for each, in the order of `select.CLASSES`."""
