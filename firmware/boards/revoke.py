"""Takes a device's keys away when the issuer says so; loaded when that happens."""

from drupelet.base.errors import OK
from drupelet.base.memory import get_u16
from drupelet.seal.record import FLAG_REVOKED, RECORD_KID_AT, RECORD_SIZE, finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import KeysPort


def mark_revoked(keys: "KeysPort", rows: int, kid: int) -> int:
    """Wipe a peer's chain keys durably and close its seals; OK or a code of the flash.

    Only keys of the base `kid`, so that what was said of older ones leaves new ones alone; 0: all.
    `rows`: how many records a peer has.
    """
    record = bytearray(RECORD_SIZE)
    code = OK
    found = False
    for row in range(rows):
        if keys.load(row, record) != OK:
            continue
        if kid and get_u16(record, RECORD_KID_AT) & ~3 != kid:
            continue
        found = True
        record[1] |= FLAG_REVOKED
        for at in range(16, 48):
            record[at] = 0
        finish(record)
        saved = keys.save(row, record)
        if saved != OK:
            code = saved
    if found:
        for seal in keys.seals:
            seal.close()
    return code
