"""Rewrites the custom syntax of Shardy's operations, which upstream does not parse, to the generic one.

    sdy.mesh @mesh = <["data"=2, "model"=4]>
        →  "sdy.mesh"() {sym_name = "mesh", mesh = #sdy.mesh<["data"=2, "model"=4]>} : () -> ()
    %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {}]> : tensor<8x4xf32>
        →  %1 = "sdy.sharding_constraint"(%0) {sharding = #sdy.sharding<@mesh, [{"data"}, {}]>} : (…) -> …
    %0 = sdy.manual_computation(%a) in_shardings=[…] out_shardings=[…] manual_axes={"data"} (%x: …) { … } : (…) -> …
        →  %0 = "sdy.manual_computation"(%a) ({ ^bb0(%x: …): … }) {in_shardings = "[…]", …} : (…) -> …
"""

from __future__ import annotations

from motet.compiler.frontends.normaliser import Edit, Source


def mesh(source: Source, index: int) -> list[Edit]:
    """`sdy.mesh @NAME = <…> {…}`."""
    if source.at(index + 2) != "=" or source.at(index + 3) != "<":
        raise source.error("sdy.mesh: expected @NAME = <[\"AXIS\"=DEVICES, …]>", index)
    end = source.group_end(index + 3)
    written = source.slice(index + 3, end)
    if source.at(end) == "{":
        end = source.group_end(end)
    text = f'"sdy.mesh"() {{sym_name = "{source.at(index + 1)[1:]}", mesh = #sdy.mesh{written}}} : () -> ()'
    return [_edit(source, index, end, text)]


def constraint(source: Source, index: int) -> list[Edit]:
    """`sdy.sharding_constraint %0 <…> : TYPE`, and `sdy.reshard` alike."""
    name, value = source.at(index), source.at(index + 1)
    if source.at(index + 2) != "<":
        raise source.error(f"{name}: expected a value and a sharding <@MESH, […]>", index)
    end = source.group_end(index + 2)
    written = source.slice(index + 2, end)
    last = source.type_end(end + 1)
    kind = source.slice(end + 1, last)
    text = f'"{name}"({value}) {{sharding = #sdy.sharding{written}}} : ({kind}) -> {kind}'
    return [_edit(source, index, last, text)]


def manual_computation(source: Source, index: int) -> list[Edit]:
    """The operands stay; attributes move behind the region, whose arguments become those of a block."""
    edits = [_edit(source, index, index + 1, '"sdy.manual_computation"')]
    i = source.group_end(index + 1)
    attributes: list[str] = []
    start = i
    for name in ("in_shardings", "out_shardings", "manual_axes"):
        if source.at(i) != name or source.at(i + 1) != "=":
            raise source.error(f"sdy.manual_computation: expected {name}=, there is {source.at(i)}", i)
        end = source.group_end(i + 2)
        attributes.append(f'{name} = {_quoted(source.slice(i + 2, end))}')
        i = end
    arguments = source.slice(i, source.group_end(i))
    body = source.group_end(i)
    last = source.group_end(body)
    edits.append(Edit(source.tokens[start].start, source.tokens[body].end, f" ({{\n^bb0{arguments}:\n"))
    edits.append(_edit(source, last - 1, last, f"}}) {{{', '.join(attributes)}}}"))
    return edits


def end_of_computation(source: Source, index: int) -> list[Edit]:
    """`sdy.return %0 : TYPE`."""
    i = index + 1
    values: list[str] = []
    while source.at(i).startswith("%"):
        values.append(source.at(i))
        i += 2 if source.at(i + 1) == "," else 1
    kinds: list[str] = []
    if source.at(i) == ":":
        i += 1
        for _ in values:
            end = source.type_end(i)
            kinds.append(source.slice(i, end))
            i = end + 1 if source.at(end) == "," else end
    return [_edit(source, index, i, f'"sdy.return"({", ".join(values)}) : ({", ".join(kinds)}) -> ()')]


def _edit(source: Source, begin: int, end: int, text: str) -> Edit:
    return Edit(source.tokens[begin].start, source.tokens[end - 1].end, text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
