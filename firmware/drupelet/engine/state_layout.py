# host only: for checks that take the whole state of an engine out, and put it back
"""The layout of the engine's tables: where epochs are, which rows are used, what is scratch.

The exhaustive worlds compare states (docs/DESIGN.md 19). There, epochs count from the present one,
and what nothing will read is zero.
"""

from collections.abc import Callable, Iterator

from drupelet.base.limits import ASKED_TAGS_MAX
from drupelet.base.memory import put_u16
from drupelet.engine.exchange import _ASKED, _ASKED_TAGS, Exchange
from drupelet.engine.inbox import _EPOCH as _ENTRY_EPOCH
from drupelet.engine.inbox import ENTRY_SIZE, OWED_SIZE, Inbox
from drupelet.engine.outbox import _EPOCH as _ROW_EPOCH
from drupelet.engine.outbox import ROW_SIZE, Outbox
from drupelet.engine.pace import _LAST_EPOCH, _NEWEST_EPOCH, ACKS, REPLIES, Pace
from drupelet.engine.pending import _EPOCH as _PENDING_EPOCH
from drupelet.engine.pending import ROW_SIZE as _PENDING_SIZE
from drupelet.engine.pending import Pending

# By class: fields that hold no state between two calls, and counters that nothing depends on.
SCRATCH = {
    "Core": "id delivered duplicates malformed unknown refused now_ms is_telemetry"
    " link_number message_handle message_row",
    "Graph": "ids handle is_ephemeral _depends_on_private _depends_on_gone",
    "Pending": "marks",
    "Clocks": "epochs",  # code that shifts states in time treats them on its own
}
# Which numbers of `Pace.answers` are epochs; a negative one means none.
ANSWER_EPOCHS = tuple(kind + at for kind in (ACKS, REPLIES) for at in (_NEWEST_EPOCH, _LAST_EPOCH))

# A table: a predicate for its used rows, the number of rows, the columns.
Table = tuple[Callable[[int], bool], int, "list[bytearray | list[int]]"]


def row_epochs(owner: object) -> "list[tuple[bytearray, int]]":
    """Return each epoch in the packed rows of an object, as buffer and offset."""
    if isinstance(owner, Outbox):
        return _column(owner.rows, ROW_SIZE, _ROW_EPOCH)
    if isinstance(owner, Pending):
        return _column(owner.rows, _PENDING_SIZE, _PENDING_EPOCH)
    if isinstance(owner, Inbox):
        return _column(owner.entries, ENTRY_SIZE, _ENTRY_EPOCH)
    return []


def _column(rows: bytearray, size: int, at: int) -> "list[tuple[bytearray, int]]":
    return [(rows, row + at) for row in range(0, len(rows), size)]


def tables(owner: object) -> Iterator[Table]:
    """Yield the tables of an object; what unused rows contain is noise."""
    scratch = SCRATCH.get(type(owner).__name__, "").split()
    columns = [
        column
        for name, column in vars(owner).items()
        if isinstance(column, bytearray | list) and name not in scratch
    ]
    if isinstance(owner, Outbox):
        yield (lambda row: row < owner.count), owner.rows_max, columns
    elif isinstance(owner, Pending):
        yield (lambda row: owner.handles[row] != 0), owner.rows_max, columns
    elif isinstance(owner, Inbox):
        rows = owner._owed_rows
        is_owed = lambda row: row < owner.owed_end and owner.owed(row) != 0  # noqa: E731
        yield is_owed, len(rows) // OWED_SIZE, [rows]
        yield (lambda entry: owner.kind(entry) != 0), owner.offers_max + 1, [owner.entries]


def tidy_pending(pending: Pending, epoch: int) -> None:
    """Set the epochs of parents that were never requested to `epoch`: nothing reads them."""
    for row in range(pending.rows_max):
        if not pending.sends(row):
            put_u16(pending.rows, row * _PENDING_SIZE + _PENDING_EPOCH, epoch)


def tidy_exchange(exchange: Exchange, epoch: int) -> None:
    """Normalize what nothing will read; epochs become `epoch`."""
    outbox = exchange.outbox
    for row in range(outbox.rows_max):
        if row >= outbox.count or not outbox.is_open(row):
            outbox.make_due(row)
        if not outbox.sends(row):
            outbox.note_sent(row, 0, epoch)
    inbox = exchange.inbox
    for entry in range(inbox.offers_max + 1):
        if not inbox.kind(entry):
            put_u16(inbox.entries, entry * ENTRY_SIZE + _ENTRY_EPOCH, epoch)
    if not exchange._scan[_ASKED]:
        exchange._scan[_ASKED_TAGS:] = [0] * ASKED_TAGS_MAX
    pace = exchange.pace
    if not pace.probes:
        pace._probe_epoch = epoch


def probed_epochs(pace: Pace) -> int:
    """Return the epochs since the last back-off frame to a peer that is away."""
    return (pace.epoch - pace._probe_epoch) & 0xFFFF
