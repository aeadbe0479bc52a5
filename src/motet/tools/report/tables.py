"""The tables of the page: kernels by time, and the contents of the artifact: signatures, devices, code, plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from motet.artifact.device_flags import print_alternative
from motet.artifact.dtypes import DTYPES
from motet.artifact.kernels import KernelTable
from motet.artifact.schema import Manifest
from motet.tools.plans import describe_step, numbered_steps
from motet.tools.report.binding import ReportedDevice
from motet.tools.report.facts import FunctionFacts, label
from motet.tools.report.writing import amount, colour, number, safe, share
from motet.tools.show import show_bytes, show_seconds, show_signature


@dataclass
class _KernelRow:
    """All calls of one kernel on one device; `numbers` are the operations."""

    name: str
    kind: str
    kernel: str
    device: int
    numbers: list[int]
    flops: int = 0
    bytes: int = 0
    seconds: float = 0.0
    predicted: float = 0.0
    instructions: int = 0
    before: float = 0.0


def kernel_table(facts: FunctionFacts) -> str:
    """Kernels, copies and transfers, the longest first. The attributes of a row have its work and device, for the page
    to recompute limits when the device's rates are changed."""
    rows = _rows(facts)
    total = sum(row.seconds for row in rows)
    longest = rows[0].seconds if rows else 0.0
    measured = facts.trace is not None
    counted = any(row.instructions for row in rows)
    header = ["computes", "class", "device", "calls", "estimate", *(["measured"] if measured else []),
              *(["before", "now ÷ before"] if facts.earlier is not None else []), "share",
              "GFLOP/s", "GB/s", *(["instructions"] if counted else []), "limit", "bound by", "cost"]
    text = {"computes", "class", "device", "bound by"}
    head = "".join(f'<th class="{"text" if word in text else "n"}" tabindex="0">{word}</th>' for word in header)
    body = "".join(_row_html(facts, row, total, longest, measured, counted) for row in rows)
    return (f'<div class="rates">{"".join(_rates(facts))}</div><div class="wide"><table class="kernels"><thead><tr>'
            f"{head}</tr></thead><tbody>{body}</tbody></table></div>")


def _rows(facts: FunctionFacts) -> list[_KernelRow]:
    found: dict[tuple[int, str, str], _KernelRow] = {}
    for number_, operation in enumerate(facts.program.operations):
        if operation.kind in ("input", "result"):
            continue
        info = operation.info
        name = label(facts, operation)
        kind = operation.kind if info is None else info.kind
        # Kernels of different regions are distinct even if their names are equal.
        key = operation.device, operation.name + name, kind
        row = found.setdefault(key, _KernelRow(name, kind, operation.name, operation.device, []))
        row.numbers.append(number_)
        row.flops += operation.flops
        row.bytes += operation.bytes
        row.seconds += facts.seconds(number_)
        row.predicted += facts.predicted.get(number_, 0.0)
        row.instructions += facts.instructions.get(number_, 0)
        row.before += 0.0 if facts.earlier is None else facts.earlier.measured.get(number_, 0.0)
    return sorted(found.values(), key=lambda row: -row.seconds)


def _row_html(
    facts: FunctionFacts, row: _KernelRow, total: float, longest: float, measured: bool, counted: bool
) -> str:
    bound = facts.program.devices[row.device]
    kernel = row.kind != "transfer"
    limit = bound.limit(row.flops, row.bytes) if kernel and bound.is_measured else 0.0
    by = "arithmetic" if row.flops / bound.peak >= row.bytes / bound.rates.memory else "memory"
    cells = [
        f'<td class="text"><i class="dot {colour(row.kind)}"></i>{safe(row.name)}'
        f'<span class="quiet"> {safe("" if row.kernel in (row.kind, row.name) else row.kernel)}</span></td>',
        f'<td class="text">{safe(row.kind)}</td>', f'<td class="text">{safe(bound.title)}</td>',
        _cell(len(row.numbers), str(len(row.numbers))), _time(row.predicted),
        *([_time(row.seconds)] if measured else []),
        *([_time(row.before), _change(row.seconds, row.before)] if facts.earlier is not None else []),
        f'<td class="n share" data-v="{row.seconds!r}"><span class="meter" style="width:'
        f'{number(60 * row.seconds / longest if longest else 0)}px"></span>{safe(share(row.seconds, total))}</td>',
        _cell(*_rate(row.flops, row.seconds)), _cell(*_rate(row.bytes, row.seconds)),
        *([_cell(row.instructions, f"{row.instructions:,}" if row.instructions else "-")] if counted else []),
        f'<td class="n limit" data-v="{limit!r}">{show_seconds(limit) if limit else "-"}</td>',
        f'<td class="text by">{by if limit else "-"}</td>',
        f'<td class="n cost" data-v="{row.seconds / limit if limit else 0!r}">'
        f'{f"{row.seconds / limit:.3g} ×" if limit and row.seconds else "-"}</td>',
    ]
    work = f' data-flops="{row.flops}" data-bytes="{row.bytes}" data-seconds="{row.seconds!r}"' if kernel else ""
    return f'<tr data-o="{facts.key}o{row.numbers[0]}" data-device="{row.device}"{work}>{"".join(cells)}</tr>'


def _cell(value: float, text: str) -> str:
    return f'<td class="n" data-v="{value!r}">{safe(text)}</td>'


def _time(seconds: float) -> str:
    return _cell(seconds, show_seconds(seconds) if seconds else "-")


def _change(seconds: float, before: float) -> str:
    ratio = seconds / before if before else 0.0
    mark = " slower" if ratio > 1.05 else " quicker" if 0 < ratio < 0.95 else ""
    return f'<td class="n{mark}" data-v="{ratio!r}">{f"{ratio:.2f} ×" if ratio else "-"}</td>'


def _rate(work: float, seconds: float) -> tuple[float, str]:
    rate = work / seconds / 1e9 if seconds else 0.0
    return rate, f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}" if rate else "-"


def _rates(facts: FunctionFacts) -> Iterable[str]:
    """The rates behind the limits, as input fields."""
    used = sorted({operation.device for operation in facts.program.operations})
    for device in used:
        bound = facts.program.devices[device]
        yield (
            f'<span><b>{safe(bound.title)}</b> can do '
            f'<input type="number" min="0" step="any" data-rate="flops" data-device="{device}" '
            f'aria-label="GFLOP/s of {safe(bound.title)}" {_value(bound, bound.peak)}> GFLOP/s, '
            f'<input type="number" min="0" step="any" data-rate="bytes" data-device="{device}" '
            f'aria-label="GB/s of {safe(bound.title)}" {_value(bound, bound.rates.memory)}> GB/s'
            f'{_unmeasured(bound)}</span>'
        )


def _value(bound: ReportedDevice, rate: float) -> str:
    return f'value="{rate / 1e9:.4g}"' if bound.is_measured else 'value="" placeholder="unknown"'


def _unmeasured(bound: ReportedDevice) -> str:
    return "" if bound.is_measured else " (not measured: motet devices --measure -o FILE, then --rates FILE)"


# -- the contents of the artifact ------------------------------------------------------------------


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th class="text">{safe(word)}</th>' for word in header)
    body = "".join("<tr>" + "".join(f'<td class="text">{safe(cell)}</td>' for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def contents_html(manifest: Manifest, devices: Sequence[ReportedDevice]) -> str:
    """The contents that do not belong to a single function."""
    parts = ["<h3>Functions</h3><ul>"]
    parts += [f"<li><code>{safe(show_signature(signature))}</code></li>" for signature in manifest.functions]
    parts.append("</ul><h3>Devices</h3>")
    wanted = {device.name: ", else ".join(map(print_alternative, device.alternatives)) for device in manifest.devices}
    parts.append(_table(
        ["device", "may be", "is", "which is", "runs code for", "note"],
        [[f"@{bound.name}" if bound.name else "-", wanted.get(bound.name, "-"), bound.uri, bound.description or "-",
          bound.variant.target or "-", bound.note or "-"] for bound in devices],
    ))
    if manifest.links:
        parts.append(_table(
            ["from", "to", "shares"],
            [[f"@{link.source}", f"@{link.target}",
              ", ".join(word for word, has in (("transparent access", link.transparent_access),
                                               ("unified memory", link.unified_memory)) if has) or "nothing"]
             for link in manifest.links],
        ))
    for name, plan in manifest.plans.items():
        rows = [
            [number_, f"@{manifest.devices[step.device].name}", describe_step(step, part),
             " ".join(f"%{value}" for value in step.operands) or "-",
             " ".join(f"%{value}" for value in step.results) or "-",
             "-" if step.seconds is None else show_seconds(step.seconds)]
            for number_, step, part in numbered_steps(plan)
        ]
        whole = "" if plan.seconds is None else f", estimated to take {show_seconds(plan.seconds)}"
        parts.append(f"<h3>Plan of {safe(name)}{whole}</h3>")
        parts.append(_table(["step", "device", "what", "reads", "makes", "estimate"], rows))
    parts.append("<h3>Code</h3>")
    parts.append(_table(
        ["family", "target", "triple", "code", "kernels", "generic", "work", "needs"],
        [[v.family, v.target, v.triple,
          show_bytes(sum(manifest.members[name].size for name in v.objects)), str(len(v.kernels)),
          str(sum(kernel.kind == "generic" for kernel in v.kernels)),
          amount(KernelTable([v]).flops, "FLOP"), ", ".join(v.features) or "the base level"]
         for v in manifest.variants],
    ))
    if manifest.parameters:
        sizes = [prod(p.shape) * DTYPES[p.dtype].itemsize for p in manifest.parameters]
        place = manifest.external_parameters or "the artifact"
        parts.append(f"<p>{len(sizes)} parameters, {safe(show_bytes(sum(sizes)))}, in {safe(place)}.</p>")
    return "".join(parts)
