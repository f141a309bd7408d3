"""Takes keys over the console, before a board has any; loaded then only (docs/SPEC.md 8.2).

    keys hello                       who is there
    keys put <peer> <row> <record>   keep one record
    keys prove <peer> <row> <nonce>  show that it is kept: read it back from flash
    keys done                        go on

Each is a line, and so is each answer, of JSON. A board that has keys never comes here: what it
holds can be replaced by whoever may empty its flash, and by nobody else.
"""

import binascii
import json

from boards.keys import ROWS
from drupelet.base.compat import const
from drupelet.base.errors import OK, DrupeletError
from drupelet.seal.record import RECORD_SIZE, challenge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from boards.keys import BoardKeys
    from boards.ports import ConsolePort

_LINE_SIZE_MAX = const(160)
_PROOF_SIZE = const(16)
_NONCE_SIZE = const(16)


class Keyless(DrupeletError):
    """The board was sent away before it had keys."""


def _answer(step: str, **fields: object) -> str:
    fields.update({"event": "keys", "step": step})
    return json.dumps(fields)


def take_keys(
    console: "ConsolePort", own_id: "bytes | bytearray", ring: "list[BoardKeys]"
) -> None:
    """Wait until all of `ring` may have keys and the host says `done`; raises Keyless.

    console: has `line(size_max)`, b"" at the end of input, and `say`.
    """
    own = binascii.hexlify(own_id).decode()
    wants = [binascii.hexlify(keys.peer_id).decode() for keys in ring]
    console.say(json.dumps({"event": "keyless", "id": own, "wants": wants}))
    while True:
        line = console.line(_LINE_SIZE_MAX)
        words = line.split()
        if not line or words == [b"stop"]:
            raise Keyless(
                "no keys for %s: give it some with `drupelet provision`" % ", ".join(wants)
            )
        if not words or words[0] != b"keys":
            continue
        try:
            answer = _obey(words, own, wants, ring)
        except (ValueError, IndexError):
            answer = _answer("no", why="not understood")
        console.say(answer)
        if words[1:] == [b"done"]:
            return


def _obey(words: "list[bytes]", own: str, wants: "list[str]", ring: "list[BoardKeys]") -> str:
    step = words[1]
    if step == b"hello":
        return _answer("hello", id=own, wants=wants)
    if step == b"done":
        return _answer("done")
    peer = words[2].decode()
    if peer not in wants:
        return _answer("no", why="no such peer in its configuration")
    keys = ring[wants.index(peer)]
    row = int(words[3])
    given = binascii.unhexlify(words[4])
    record = bytearray(RECORD_SIZE)
    if step == b"put" and 0 <= row < ROWS and len(given) == RECORD_SIZE:
        record[:] = given
        if keys.save(row, record) != OK:
            return _answer("no", why="the flash refused it")
        return _answer("put", row=row)
    if step == b"prove" and len(given) == _NONCE_SIZE:
        if keys.load(row, record) != OK:
            return _answer("no", why="there is no such record")
        made = challenge(bytes(record[16:48]), given)[:_PROOF_SIZE]
        return _answer("proof", row=row, proof=binascii.hexlify(made).decode())
    return _answer("no", why="not understood")
