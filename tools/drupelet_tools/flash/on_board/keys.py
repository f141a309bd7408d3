# mypy: ignore-errors
"""Which peers this board has whole keys for; its code is on it by now."""

import binascii
import json  # noqa: F401 - what is printed


def keyed(folder: str, own_id: str, peer_ids: list) -> list:
    """Those of the peers, all as hex digits, whose chains are there."""
    from boards.files import BoardFiles
    from boards.keys import BoardKeys, has_keys

    files = BoardFiles(folder)
    own = binascii.unhexlify(own_id)
    return [id for id in peer_ids if has_keys([BoardKeys(files, own, binascii.unhexlify(id), [])])]
