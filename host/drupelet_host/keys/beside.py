"""A second member on this machine: its home is made beside another one, with keys for the two.

Both homes are within reach, so no invitation travels and nobody reads words out.
"""

from dataclasses import replace
from pathlib import Path

from drupelet_host.home import config, private_files
from drupelet_host.home.config import Config, Peer
from drupelet_host.keys.key_folder import KeysError
from drupelet_host.keys.provision import provision_peer


def create_beside(new: Config, beside: Path, url: str) -> Path:
    """Make the home of `new`, in the group of the home `beside`; return its configuration's path.

    Each knows the other as a host that it reaches by `url`. Raises ConfigError or KeysError.
    What can be refused is refused before anything is made.
    """
    other = config.load(beside)
    if new.group and new.group != other.group:
        raise KeysError(f"{beside}: its group is {other.group!r}; leave --group out")
    if new.name in (other.name, *other.names().values()):
        raise KeysError(f"{new.name}: {other.name} knows a member of that name; choose another")
    if new.client not in (None, other.client):
        raise KeysError(f"{beside}: its client is another one; leave --client out")
    new = replace(
        new, group=other.group, family=other.family, epoch_ms=other.epoch_ms, client=other.client
    )
    as_known = [_peer_for(member, url) for member in (other, new)]
    path = config.create(replace(new, peers=(as_known[0],)))
    private_files.make_folder(new.home / "keys")
    provision_peer(new, other.id.hex(), str(beside))
    config.add_peer(beside, as_known[1])
    return path


def _peer_for(member: Config, url: str) -> Peer:
    return Peer(member.name, member.id, url, epoch_ms=member.epoch_ms, board="host")
