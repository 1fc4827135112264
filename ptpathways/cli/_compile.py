"""``ptpathways compile``: a saved program for chips that one need not have."""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.console import Console
from rich.table import Table

from ptpathways import platforms, programs

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def main(arguments: argparse.Namespace) -> int:
    """Compiles and prints; exit code 0 if it compiles and fits, else 1.

    Raises:
        InvalidProgram: the file is no saved program.
        InvalidOption: no such target, or one that is too small for a slice.
        PluginNotFound: the plugin that compiles for it is not installed.
    """
    bundle = programs.Bundle.load(arguments.path)
    target = platforms.find_target(arguments.target, arguments.plugin)
    found = programs.compile_for(bundle, target)
    if arguments.json:
        print(json.dumps({**dataclasses.asdict(found), "verdict": found.verdict}))
    else:
        _show(found)
    return 0 if found.fits else 1


def _show(found: programs.CompiledFor) -> None:
    console = Console(highlight=False)
    console.print(
        f"program {found.program} for {found.target}: {found.used_devices} of {found.devices} devices, "
        f"compiled by {found.plugin} in {sum(function.compile_s for function in found.functions):.1f} s"
    )
    console.print(_functions(found))
    collectives = _collectives(found)
    if collectives.row_count:
        console.print(collectives)
    for function in found.functions:
        if function.error:
            failed = "needs more memory than there is" if function.out_of_memory else "does not compile"
            console.print(f"[bold red]{function.name} {failed}[/]: {function.error}")
        elif function.collectives is None:
            console.print(f"{function.name}: {found.plugin} does not show its collectives")
    room = f"{_size(found.peak_bytes)} of {_size(found.device_memory)} per device"
    console.print(f"memory: {room}, at most while {found.peak_at} runs ({_size(found.peak_temporary_bytes)} its own)")
    if not found.fits:
        named = ", ".join(f"{value.name} {value.type} {_size(value.bytes)}" for value in found.largest)
        console.print(f"largest values then, on each device: {named}")
    if found.compiles:
        console.print(f"one run: about {_time(found.step_seconds)} ({found.basis})")
    console.print(f"[bold]{found.verdict}[/]")


def _functions(found: programs.CompiledFor) -> Table:
    table = _table(("function", "devices", "calls"), ("arguments", "outputs", "temporary", "code", "GFLOP", "time"))
    for function in found.functions:
        numbers: tuple[str, ...] = ("-",) * 6
        if not function.error:
            sizes = (
                function.argument_bytes,
                function.output_bytes - function.aliased_bytes,
                function.temporary_bytes,
                function.code_bytes,
            )
            numbers = (*map(_size, sizes), f"{function.flops / 1e9:.3g}", _time(function.seconds))
        table.add_row(function.name, str(function.devices), str(function.calls), *numbers)
    return table


def _collectives(found: programs.CompiledFor) -> Table:
    table = _table(("function", "collective", "along"), ("count", "bytes", "time"))
    for function in found.functions:
        for use in function.collectives or ():
            table.add_row(function.name, use.opcode, use.axes, str(use.count), _size(use.bytes), _time(use.seconds))
    return table


def _table(texts: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for column in texts:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _size(count: int) -> str:
    size = float(count)
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.3g} {unit}" if unit != "B" else f"{count} B"
        size /= 1024
    return f"{size:.3g} {_UNITS[-1]}"


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
