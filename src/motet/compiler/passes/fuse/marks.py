"""The attributes by which passes tell grouping what it does not see in an operation."""

MARK = "motet.attention"  # operation attribute: the number of the attention that an operation belongs to
JOINED = "motet.joined"  # operation attribute: the number of the multi-GEMM that an operation belongs to
INTERLEAVED = "motet.interleaved"  # operation attribute: the number of the tensor that an insertion helps to make
TOGETHER = "motet.together"  # operation attribute: marks concatenations grouped with the operations that make the parts
HELD = "motet.held"  # operation attribute: one program holds what this reduces, or gathers it for its rows
PLACES = "motet.places"  # operation attribute: kernels compute these numbers where they read them
BESIDE = "motet.beside"  # operation attribute: the number of a launch that has the operation's group and others
SEPARATE_SIBLINGS = "motet.separate_siblings"  # module attribute: `group_block` must not fuse sibling convolutions
