"""Chain keys as a board's key file and a home hold them."""

from drupelet.seal.record import RECORD_SIZE
from host.conftest import Home


def chain_keys(content: bytes) -> dict[int, bytes]:
    """Row -> chain key of a board's key file."""
    rows = range(8)  # behind them are those of names
    found = {row: content[row * RECORD_SIZE + 16 :][:32] for row in rows}
    return {row: key for row, key in found.items() if any(key)}


def home_keys(home: Home, peer: bytes) -> dict[int, bytes]:
    content = [
        (home.path / f"keys/{peer.hex()}.{n}").read_bytes()[: 4 * RECORD_SIZE]
        for n in ("live", "bundle")
    ]
    return chain_keys(b"".join(content))
