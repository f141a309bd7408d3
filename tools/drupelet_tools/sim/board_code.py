"""The boards' own code on this computer: what a simulation runs is what a board runs."""

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from types import ModuleType
from typing import Any, ClassVar

from drupelet.store.files import Files
from drupelet_host.base.aead import Aead
from drupelet_tools.flash.build import ROOT
from drupelet_tools.flash.errors import BuildError

_HEAP_FREE = 100_000


def board_module(name: str) -> ModuleType:
    """A module of `boards`, which lies beside this project's packages and is none of them.

    Raises BuildError where this installation has no firmware.
    """
    folder = str(ROOT / "firmware")
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(f"boards.{name}")
    except ModuleNotFoundError as error:
        raise BuildError(f"no board code in {folder} ({error}): install the firmware") from None


def going_on(plain: Any) -> Any:  # noqa: ANN401 - a class of the boards' code
    """`Author`, which looks at its log once, as far as it stood at the last boot.

    A board looks at all of it at each wake: here thousands of wakes would take minutes.
    """

    class GoingOn(plain):  # type: ignore[misc]
        """The same author, boot after boot."""

        known: ClassVar[dict[str, Any]] = {}

        def recover(self) -> None:
            """See Author."""
            self.__dict__.update(deepcopy(self.known))
            super().recover()
            GoingOn.known = {
                name: deepcopy(value)
                for name, value in self.__dict__.items()
                if name not in ("_node", "group", "body")
            }

    return GoingOn


@contextmanager
def on_this_computer(files: Files) -> Iterator[Callable[[dict[str, object], object], object]]:
    """What puts a board together from a configuration and a port, as `boards.setup.make`.

    Its flash is `files`: CPython's files lack a call that MicroPython's have. Its AEAD is the
    host's, which gives the same bytes, its heap is never short, and it keeps code that a board
    lets go.
    """
    setup: Any = board_module("setup")
    sealing: Any = board_module("sealing")
    old = setup.BoardFiles, sealing.Aead, setup.Setup.let_go, setup.Author
    setup.Author = going_on(setup.Author)
    setup.BoardFiles = sealing.BoardFiles = lambda _folder: files
    sealing.Aead = Aead
    setup.Setup.let_go = lambda *_: None
    gc.mem_free = lambda: _HEAP_FREE  # type: ignore[attr-defined]
    gc.mem_alloc = lambda: 0  # type: ignore[attr-defined]
    gc.freeze()  # boards collect often, and there is nothing to find in what is here already
    try:
        yield setup.make
    finally:
        gc.unfreeze()
        del gc.mem_free, gc.mem_alloc  # type: ignore[attr-defined]
        setup.BoardFiles = sealing.BoardFiles = old[0]
        sealing.Aead, setup.Author = old[1], old[3]
        setup.Setup.let_go = staticmethod(old[2])
