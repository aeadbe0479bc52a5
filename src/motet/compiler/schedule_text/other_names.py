"""What to write for primitives that other schedule languages have: TVM, Halide, Exo and MLIR's transform dialect.

    {"k": {"rfactor"}}   →   schedule: rfactor of k: …; expected split_reduction, and a loop inside of it, as "k#64": {}
"""

_ORDER = "the loops in their order, outermost first"
_TILE = 'a loop over a tile, as "i#16": {}, at its place among the loops'
_TASKS = "parallelize, for the outermost loops"
_STAGE = 'the stage with "fuse", as "stage1": {"fuse": "i"}'
_PACK = '"pack" of the operand, as "B": {"pack": "k"}'
_BUFFER = '"buffer" of the result, as "C": {"buffer": "k"}'

OF_LOOPS = {
    **dict.fromkeys(("reorder", "interchange", "permute"), _ORDER),
    **dict.fromkeys(("tile", "strip_mine"), _TILE),
    "split": 'a loop over a tile, as "i#16": {}, or parts of the dimension, as "i[0:60]": {…}, "i[60:]": {…}',
    **dict.fromkeys(("rfactor", "split_k"), 'split_reduction, and a loop inside of it, as "k#64": {}'),
    **dict.fromkeys(("parallel", "parallelise", "distribute"), _TASKS),
    "vectorise": "vectorize",
    **dict.fromkeys(("compute_at", "reverse_compute_at", "store_at", "fuse"), _STAGE),
    **dict.fromkeys(("cache_read", "stage_mem"), _PACK),
    "cache_write": _BUFFER,
    "bind": f"{_TASKS}; launches of GPUs have loops as {{\"block\"}}",
    "block": f"{_TASKS}; only launches of GPUs have blocks",
    "replace": '"tensorize" with the name of a microkernel',
}

_FORM = 'no entry: each form has its own; "form" chooses one of those that `motet lab show` lists'
OF_LAUNCHES = {
    **dict.fromkeys(("reorder", "interchange", "permute"), "no entry: the loops of a launch have one order"),
    **dict.fromkeys(("parallelize", "bind", "distribute"), 'the tile of a block, as "i#64": {"block"}'),
    **dict.fromkeys(("vectorize", "unroll", "pack", "buffer", "cache_read", "cache_write"), _FORM),
    **dict.fromkeys(("pipeline", "num_stages", "double_buffer"), '"stages": 3'),
    "num_warps": '"warps": 8',
    **dict.fromkeys(("split_reduction", "rfactor", "split_k"), _FORM),
    "tensorize": "no entry: forms use the matrix units; microkernels are for loop nests",
}
