# host only: for checks that save and restore the whole state of a codec
"""Where the contacts of `compact-1` hold epochs; see `drupelet.engine.state_layout`."""

from drupelet.wire.compact.hello import (
    _PROBE_EPOCH,
    _ROW_SIZE,
    _SENDS,
    _SENT_EPOCH,
    _WAITS,
    _WAITS_FROM,
    PLAIN,
)
from drupelet.wire.compact.numbering import _ROWS_AT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drupelet.engine.exchange import Exchange
    from drupelet.wire.compact.codec import Compact1

# By class, the fields that hold no state between two calls.
SCRATCH = {
    "Compact1": "ignored _contact _row _announced _hint _frame_generation _number _size _end "
    "_base_bytes _lone_at",
}
# Which 16-bit fields of a contact's row are epochs, and how many fields a row has.
_EPOCHS = (_SENT_EPOCH // 2, _WAITS_FROM // 2, _PROBE_EPOCH // 2)
_NUMBERS = _ROW_SIZE // 2


def tidy_contact(codec: "Compact1", exchange: "Exchange", slab: bytearray, epoch: int) -> None:
    """Clear the scratch in `slab`, the codec's slab; set unused epochs of a link to `epoch`."""
    codec.use(exchange)
    slab[:_ROWS_AT] = bytes(_ROWS_AT)
    if not codec.has(_WAITS):
        codec._put_field(_WAITS_FROM, epoch)
    if not codec._count(_SENDS):
        codec._put_field(_SENT_EPOCH, epoch)
    if codec.spoken(exchange) != PLAIN:
        codec._put_field(_PROBE_EPOCH, epoch)


def shifted(slab: "bytes | bytearray", contacts_at: int, by: int) -> bytes:
    """Return a copy of a codec's slab with `by` added to every epoch from `contacts_at` on."""
    changed = bytearray(slab)
    for number in range((len(slab) - contacts_at) // 2):
        if number % _NUMBERS in _EPOCHS:
            at = contacts_at + 2 * number
            value = int.from_bytes(slab[at : at + 2], "big") + by
            changed[at : at + 2] = (value & 0xFFFF).to_bytes(2, "big")
    return bytes(changed)
