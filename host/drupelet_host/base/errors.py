"""Errors of the host that scripts must tell from others: drupelet_host.cli.exit_codes."""

from drupelet.base.errors import StorageError


class DamagedError(StorageError):
    """A store, a key or a file of ours is damaged, or of a newer version; the text names it."""
