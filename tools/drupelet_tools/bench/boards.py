"""`drupelet bench board`: firmware sets as they run on boards that are emulated here."""

from collections.abc import Callable, Sequence

from drupelet_tools.bench import m3, pico
from drupelet_tools.bench.columns import BOARD, Column, Row
from drupelet_tools.bench.table import Table, pick

ROWS = (("m3", "small"), ("m3", "micro"), ("rp2", "small"), ("rp2", "full"))
_MEMORY = (
    "board set image_bytes heap heap_min used_after_boot free_after_boot modules_heap heap_peak"
    " stack_peak alloc_per_record alloc_per_epoch"
)
_WORK = (
    "board set kinsn_publish kinsn_receive kinsn_ack kinsn_idle kinsn_seal_100 boot_ms"
    " flash_programs_per_message flash_erases_per_message"
)
_WHY = (
    Column("board", "", text=True),
    Column("set", "", text=True),
    Column("column", "", "-", text=True),
    Column("why", "", text=True),
)


def measure(board: str, set_name: str, progress: Callable[[str], None]) -> Row:
    """One row. Raises BenchError, BuildError."""
    return m3.measure(set_name, progress) if board == "m3" else pico.measure(set_name, progress)


def tables(rows: Sequence[Row]) -> list[Table]:
    """Memory, work, and what some boards cannot tell."""
    why = [
        {"board": row["board"], "set": row["set"], "column": column, "why": reason}
        for row in rows
        for column, reason in row["why_not"].items()
    ]
    return [
        Table("Memory, in bytes", pick(BOARD, _MEMORY), rows),
        Table("Work: thousand instructions, flash per message", pick(BOARD, _WORK), rows),
        Table("Not told", _WHY, why),
    ]
