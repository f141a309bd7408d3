"""What is kept of the firmware that was compiled, for tests that compile it twice."""

import pytest

from drupelet_tools.flash import build, kept, sets


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever compiles next begins at the sources."""
    monkeypatch.setattr(kept, "folder", lambda: None)
    for of_board in (build._folded, build._common_folded, build._common_constants, sets._folded):
        of_board.cache_clear()
    build._compiled.cache_clear()
