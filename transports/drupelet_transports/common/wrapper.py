"""Base of carriers around another carrier: delegates its properties and `close`."""

from drupelet_transports.common.transport import Transport


class Behind(Transport):
    """Base of the classes that seal the frames of `carrier`."""

    carrier: Transport

    @property
    def poll_object(self) -> "object | None":  # type: ignore[override]
        """See Transport."""
        return self.carrier.poll_object

    @property
    def up(self) -> bool:  # type: ignore[override]
        """See Transport."""
        return self.carrier.up

    @property
    def pending_size(self) -> int:  # type: ignore[override]
        """See Transport."""
        return self.carrier.pending_size

    @property
    def damaged(self) -> int:  # type: ignore[override]
        """See Transport."""
        return self.carrier.damaged

    def close(self) -> None:
        """See Transport."""
        self.carrier.close()
