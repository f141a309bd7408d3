"""Provisioning: accepts keys over the console while a board has none (docs/SPEC.md 8.2).

    keys hello                       report the board's id and its peers
    keys put <peer> <row> <record>   store one record
    keys prove <peer> <row> <nonce>  prove that it is stored, by reading it back from flash
    keys done                        continue the start

Each command is a line; each answer is a line of JSON. A board that has keys does not load this
module: its keys can be replaced only by somebody who can erase its flash.
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
    """The board was told to stop before it had keys."""


def _answer(step: str, **fields: object) -> str:
    fields.update({"event": "keys", "step": step})
    return json.dumps(fields)


def take_keys(
    console: "ConsolePort", own_id: "bytes | bytearray", ring: "list[BoardKeys]"
) -> None:
    """Handle the commands above for the peers of `ring` until `done`; raises Keyless on `stop`."""
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
        proof = challenge(bytes(record[16:48]), given)[:_PROOF_SIZE]
        return _answer("proof", row=row, proof=binascii.hexlify(proof).decode())
    return _answer("no", why="not understood")
