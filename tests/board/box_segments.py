"""The black box's segments on a board's flash, as an ingest reads them."""

from pathlib import Path

from drupelet_tools.telemetry.files import inputs


def segments(flash: Path) -> list[bytes]:
    """What an ingest of the copied flash reads."""
    listing = inputs.scan(inputs.find_files([flash], flash / "lake"))
    assert all(listing.ok)
    return [
        Path(listing.files[file]).read_bytes()[offset : offset + size]
        for file, offset, size in zip(listing.file, listing.offset, listing.size, strict=True)
    ]
