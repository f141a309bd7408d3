"""Revokes the keys of a peer when the issuer says so; loaded only then."""

from drupelet.base.errors import OK
from drupelet.base.memory import fill, get_u16
from drupelet.seal.record import FLAG_REVOKED, RECORD_KID_AT, RECORD_SIZE, finish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.ports import KeysPort


def mark_revoked(keys: "KeysPort", rows: int, kid: int) -> int:
    """Erase a peer's chain keys durably and close its seals; OK or a code of the flash.

    kid: revoke only keys with this base kid, so that an old revocation does not affect new keys;
    0: all. rows: how many records a peer has.
    """
    record = bytearray(RECORD_SIZE)
    code = OK
    is_found = False
    for row in range(rows):
        if keys.load(row, record) == OK and kid in (0, get_u16(record, RECORD_KID_AT) & ~3):
            is_found = True
            record[1] |= FLAG_REVOKED
            fill(record, 16, 32, 0)
            finish(record)
            code = keys.save(row, record) or code
    if is_found:
        for seal in keys.seals:
            seal.close()
    return code
