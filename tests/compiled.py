"""What is kept of the firmware that was compiled, for tests that compile it twice."""

import pytest

from drupelet_tools.flash import build, kept, sets


def clear_caches() -> None:
    """Forget what this process computed; what the cache of the clone keeps stays."""
    for module in (build, sets):
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever compiles next begins at the sources."""
    monkeypatch.setattr(kept, "folder", lambda: None)
    clear_caches()
