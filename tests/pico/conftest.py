"""The image that `drupelet flash image` makes, and emulated Picos that run it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from drupelet_tools.image.build import symbols_of
from drupelet_tools.image.sources import cache
from drupelet_tools.pico.emulator import Pico
from host.conftest import make_home
from pico.board import flash_image

__all__ = ["make_home"]


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of the set `small`; built only when something that it is made of has changed."""
    assert cache().is_dir(), "run tools/setup --for-tests"
    out = flash_image(tmp_path_factory.mktemp("image") / "small.uf2").read_bytes()
    # The one in the cache has symbols beside it. That these are the bytes of `build_image`, too,
    # test_two_builds_have_the_same_bytes shows, in the tier `long`.
    return next(path for path in cache().glob("*.uf2") if path.read_bytes() == out)


@pytest.fixture
def make_pico(image: Path, tmp_path: Path) -> Iterator[Callable[..., Pico]]:
    """Start emulated Picos whose flash is a file of the test; they end with it."""
    with ExitStack() as stack:

        def make(speed: float = 1.0, uf2: Path | None = image) -> Pico:
            return stack.enter_context(
                Pico(
                    tmp_path / "flash.bin",
                    uf2,
                    speed=speed,
                    log=tmp_path / "console.log",
                    symbols=symbols_of(uf2) if uf2 else None,
                )
            )

        yield make
