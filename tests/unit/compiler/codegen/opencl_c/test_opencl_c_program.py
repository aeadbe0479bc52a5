"""What OpenCL C lacks is refused by name, and programs can be joined."""

from __future__ import annotations

import pytest

from motet.compiler.codegen.llvm.opencl_c.program import opencl_c_program, refusal

_HEAD = "define void @k(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {\n%p = load ptr, ptr %buffers\n"


@pytest.mark.parametrize(
    ("body", "lacking"),
    [
        ("%x = load i128, ptr %p\n %y = mul i128 %x, %x\n store i128 %y, ptr %p", "a number of 128 bits"),
        ("%x = load ptr, ptr %p\n call void %x()", "a call of a computed function"),
        ("%x = atomicrmw add ptr %p, i32 1 seq_cst", "the instruction atomicrmw"),
        ("%x = alloca i32\n store volatile i32 1, ptr %x\n store ptr %x, ptr %p", "address of private"),
    ],
)
def test_what_c_lacks_is_named(body: str, lacking: str) -> None:
    program = opencl_c_program(f"{_HEAD}  {body}\n  ret void\n}}\n", [("k", 1, 0)])
    assert lacking in refusal(program.encode())


def test_names_of_programs_differ() -> None:
    table = '@table = internal constant [3 x i32] [i32 7, i32 8, i32 9]\n'
    body = "%i = getelementptr i32, ptr @table, i64 %begin\n%x = load i32, ptr %i\nstore i32 %x, ptr %p\nret void\n}\n"
    texts = [(table + _HEAD + body).replace("@k", f"@{name}") for name in ("one", "two")]
    programs = [opencl_c_program(text, [(name, 1, 0)]) for text, name in zip(texts, ("one", "two"), strict=True)]
    for program, name in zip(programs, ("one", "two"), strict=True):
        assert not refusal(program.encode())
        assert f"constant ulong motet_table_{name}_0[]" in program and f"void {name}__1b0s(" in program
