"""What a process keeps of the firmware that it compiled, for tests that compile it twice."""

from drupelet_tools.flash import build, sets


def forget() -> None:
    """Whoever compiles next begins at the sources."""
    for of_board in (build._folded, build._common_folded, build._common_constants, sets._folded):
        of_board.cache_clear()
    build._compiled.cache_clear()
