"""Takes a device's keys away when the issuer says so; loaded when that happens."""

from boards.keys import ROWS
from drupelet.errors import OK
from drupelet.seal_record import FLAG_REVOKED, RECORD_SIZE, finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.keys import BoardKeys


def mark_revoked(keys: "BoardKeys") -> int:
    """Wipe a peer's chain keys durably and close its seals; OK or a code of the flash."""
    record = bytearray(RECORD_SIZE)
    code = OK
    for row in range(ROWS):
        if keys.load(row, record) != OK:
            continue
        record[1] |= FLAG_REVOKED
        for at in range(16, 48):
            record[at] = 0
        finish(record)
        saved = keys.save(row, record)
        if saved != OK:
            code = saved
    for seal in keys.seals:
        seal.close()
    return code
