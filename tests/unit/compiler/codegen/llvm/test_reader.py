"""What is read of LLVM's text is what LLVM tells of it."""

from __future__ import annotations

import struct
from typing import Any

import llvmlite.binding as llvm
import pytest

from motet.compiler.codegen.llvm.ir import Inexpressible, bits_of, elements_of, field_offset, size_of
from motet.compiler.codegen.llvm.reader import global_address, read_instruction, read_module, read_type
from motet.compiler.codegen.llvm.spirv import TRIPLE

TYPES = (
    "i1", "i8", "i24", "i64", "i128", "half", "double", "ptr", "<3 x float>", "<5 x i8>", "<24 x float>", "[7 x i16]",
    "[2 x <3 x i8>]", "{ i8, i32, i16 }", "<{ i8, i32, i16 }>", "{ i8, { i16, i8 }, <2 x double>, [3 x ptr] }",
    "[3 x { double, i8 }]",
)  # fmt: skip
NUMBERS = (
    ("i8", "-3"), ("i24", "77"), ("i1", "true"), ("i128", "-5"), ("float", "1.5"), ("float", "0x3FB99999A0000000"),
    ("float", "-0.0"), ("float", "0xFFF0000000000000"), ("double", "0.1"), ("half", "0xH3555"), ("bfloat", "0xRC0A0"),
)  # fmt: skip


def _target_data() -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine().target_data


@pytest.mark.parametrize("text", TYPES)
def test_types_take_the_memory_that_llvm_gives_them(text: str) -> None:
    data = _target_data()
    made: Any = llvm.parse_assembly(f'target datalayout = "{data}"\n@x = external global {text}\n')
    expected = made.get_global_variable("x").global_value_type
    kind, rest = read_type(text)
    assert (str(kind), rest) == (text, "")
    assert size_of(kind) == data.get_abi_size(expected)
    if kind.is_struct:
        assert [field_offset(kind, i) for i in range(len(kind.fields))] == [
            data.get_element_offset(expected, i) for i in range(len(kind.fields))
        ]


@pytest.mark.parametrize(("kind", "number"), NUMBERS)
def test_constants_have_the_bits_that_llvm_gives_them(kind: str, number: str) -> None:
    module: Any = llvm.parse_assembly(f"define {kind} @f() {{\n  ret {kind} {number}\n}}\n")
    [block] = next(iter(module.functions)).blocks
    expected = next(iter(next(iter(block.instructions)).operands)).get_constant_value()
    [value] = read_module(str(module)).functions["f"].blocks[0].instructions[0].operands
    bits = bits_of(value)
    assert bits is not None
    if kind == "bfloat":
        bits <<= 16
    letters = {"half": "He", "bfloat": "If", "float": "If", "double": "Qd"}.get(kind)
    found = struct.unpack(f"<{letters[1]}", struct.pack(f"<{letters[0]}", bits))[0] if letters else bits
    assert (found, str(found)) == (expected, str(expected))


def test_a_nan_keeps_its_payload() -> None:
    made = read_instruction("  ret float 0x7FF4000020000000")
    assert made is not None and bits_of(made.operands[0]) == 0x7FA00001


def test_elements_of_constants() -> None:
    text = (
        '@t = constant { [3 x i8], <2 x i16>, [2 x float] } { [3 x i8] c"a\\22\\00", <2 x i16> splat (i16 -1), '
        "[2 x float] [float 1.0, float undef] }\n@z = constant [2 x { i8, i1 }] zeroinitializer\n"
    )
    variables = read_module(str(llvm.parse_assembly(text))).variables
    numbers = [[bits_of(number) for number in elements_of(value)] for value in elements_of(variables["@t"])]
    assert numbers == [[97, 34, 0], [0xFFFF, 0xFFFF], [0x3F800000, None]]
    assert [[str(part) for part in elements_of(value)] for value in elements_of(variables["@z"])] == [
        ["i8 0", "i1 false"], ["i8 0", "i1 false"],
    ]  # fmt: skip


MODULE = """
@t = constant [4 x { i8, i32 }] zeroinitializer
declare float @f(ptr, i32)
declare { i32, i1 } @llvm.sadd.with.overflow.i32(i32, i32)
define void @k(ptr noundef nonnull align 8 dereferenceable(16) %p, <4 x float> %v, i64 range(i64 0, 9) %i) {
entry:
  %c = tail call nnan noundef float @f(ptr noundef align 4 captures(none) %p, i32 range(i32 -2, 5) -1), !fpmath !0
  %s = call { i32, i1 } @llvm.sadd.with.overflow.i32(i32 1, i32 2)
  %o = extractvalue { i32, i1 } %s, 1
  %w = shufflevector <4 x float> %v, <4 x float> poison, <3 x i32> <i32 3, i32 poison, i32 0>
  %m = load volatile i16, ptr getelementptr inbounds ([4 x { i8, i32 }], ptr @t, i64 0, i64 2, i32 1), align 2
  %x = cmpxchg weak ptr %p, i32 0, i32 7 acq_rel monotonic, align 4
  %a = getelementptr inbounds nuw { i8, i32 }, ptr %p, i64 %i, i32 1
  switch i32 3, label %"the end" [
    i32 -1, label %more
    i32 9, label %"the end"
  ]
more:
  %q = icmp samesign ult ptr %a, null
  br i1 %q, label %more, label %"the end"
"the end":
  ret void
}
!0 = !{float 2.5}
"""


def test_instructions_of_a_module() -> None:
    function = read_module(str(llvm.parse_assembly(MODULE))).functions["k"]
    assert list(map(str, function.parameters)) == ["ptr %p", "<4 x float> %v", "i64 %i"]
    assert [block.label for block in function.blocks] == ["%entry", "%more", '%"the end"']
    call, sums, part, shuffle, load, exchange, address, switch = function.blocks[0].instructions
    assert (str(call.value), call.detail, call.flags) == ("float %c", "f", ("nnan",))
    assert list(map(str, call.operands)) == ["ptr %p", "i32 -1"]
    assert (str(sums.type), str(part.type), part.indices) == ("{ i32, i1 }", "i1", [1])
    assert (str(shuffle.type), shuffle.indices) == ("<3 x float>", [3, -1, 0])
    assert (load.flags, load.align, global_address(load.operands[0])) == (("volatile",), 2, ("@t", 20))
    assert (str(exchange.type), str(exchange.operands[2])) == ("{ i32, i1 }", "i32 7")
    assert (address.words, str(address.over)) == ("getelementptr inbounds nuw", "{ i8, i32 }")
    assert (switch.labels, [bits_of(value) for value in switch.operands]) == (
        ['%"the end"', "%more", '%"the end"'], [3, 0xFFFFFFFF, 9],
    )  # fmt: skip
    compare, branch = function.blocks[1].instructions
    assert (compare.words, compare.detail, str(compare.type)) == ("icmp samesign ult", "ult", "i1")
    assert branch.labels == ["%more", '%"the end"']


def test_what_is_not_read_is_told() -> None:
    assert read_instruction("  %x = atomicrmw add ptr %p, i32 1 seq_cst, align 4") is None
    with pytest.raises(Inexpressible, match="the type %opaque"):
        read_type("%opaque")
    with pytest.raises(Inexpressible, match="the constant ptrtoint"):
        bits_of(read_module("@x = constant i64 ptrtoint (ptr @x to i64)\n").variables["@x"])
