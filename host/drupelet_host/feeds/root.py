"""The root of our feed, and who may know it (docs/SPEC.md 8.2, 15.5).

A member that is no peer any more, or not trusted, gets no other root: whatever is uploaded from
then on is under a new one.
"""

import os

from drupelet_host.clients.feed_notices import ACCESS_SIZE
from drupelet_host.home import private_files
from drupelet_host.home.config import Config
from drupelet_host.keys.key_folder import is_revoked
from drupelet_host.remote.log_bytes import ROOT_SIZE

FEED_KEY_NAME = "feed.key"
# Id and access key of the store that our feed is in.
STORE_KEY_NAME = "store.key"
# 1 when the members were told of the root, 0 before; then the ids of those who may know it.
READERS_NAME = "feed.readers"
_ID_SIZE = 4
_SIZE_MAX = 1 + _ID_SIZE * 1024


class FeedRoot:
    """Raises PrivateError or StorageError, as its files do."""

    def __init__(self, settings: Config) -> None:
        self._settings = settings
        self._path = settings.keys_path / FEED_KEY_NAME
        self._readers = settings.keys_path / READERS_NAME

    def renew(self) -> None:
        """Make a new root if somebody may know this one that is not to.

        Those of a store that we serve go with it.
        """
        settings = self._settings
        peers = {peer.id for peer in settings.peers}
        trusted = {id for id in peers if not is_revoked(settings.keys_path, id)}
        is_announced, known = self._noted()
        if known is None:
            known = peers if self._path.exists() else trusted
        elif known == trusted:
            return
        gone = not known <= trusted
        if gone:
            # First: after a cut in between the next look makes another one.
            if settings.feed is not None and settings.feed.serve:
                private_files.replace(settings.keys_path / STORE_KEY_NAME, os.urandom(ACCESS_SIZE))
            private_files.replace(self._path, os.urandom(ROOT_SIZE))
        self._note(trusted, is_announced and not gone)

    def current(self, announced: bytes) -> bytes:
        """The root; `announced`: what we ourselves told the members last, b"" for none.

        That one counts, for our file may be of an older backup; but not against one that they are
        still to be told of. What others say is our root never counts: they could read all we
        upload.
        """
        if announced and (self._noted()[0] or not self._path.exists()):
            return announced
        return private_files.secret(
            self._path, ROOT_SIZE,
            "restore a copy, or remove it for the one that members know, or a new one",
        )  # fmt: skip

    def mark_announced(self) -> None:
        """The members know it from now on."""
        is_announced, known = self._noted()
        if not is_announced:
            self._note(known or set(), True)

    def _noted(self) -> tuple[bool, set[bytes] | None]:
        """Whether the members were told, and who may know it; None: of an older release."""
        content = private_files.read(self._readers, _SIZE_MAX) if self._readers.exists() else b""
        if not content:
            return True, None
        ids = {content[at : at + _ID_SIZE] for at in range(1, len(content), _ID_SIZE)}
        return content[0] != 0, ids

    def _note(self, ids: set[bytes], is_announced: bool) -> None:
        private_files.make_folder(self._readers.parent)
        private_files.replace(self._readers, bytes([is_announced]) + b"".join(sorted(ids)))
