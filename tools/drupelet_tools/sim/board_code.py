"""The boards' own code on this computer: what a simulation runs is what a board runs."""

import gc
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

from drupelet import host_api
from drupelet.store.files import Files
from drupelet_host.aead import Aead
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


def _going_on(plain: Any) -> Any:  # noqa: ANN401 - a class of the boards' code
    """`boards.device.Device`, which looks at its log once, as far as it stood at the last boot.

    A board looks at all of it at each wake: here thousands of wakes would take minutes.
    """

    class GoingOn(plain):  # type: ignore[misc]
        """The same device, boot after boot."""

        known: ClassVar[tuple[Any, ...]] = ()

        def recover(self) -> None:
            """See Device."""
            author = self.author
            if not self.known:
                super().recover()
            else:
                self.own, self.logged, self._recovered, ids, author.has_own, foreign = self.known
                author.ids[:], author.has_foreign = ids, foreign
                for message in host_api.messages(self.node.store, self._recovered):
                    self._recovered = message.handle
                    self._saw(message.handle)
                    if message.group == self._readings and not message.source:
                        self.own += 1
                        author.saw(message.handle)
            GoingOn.known = (
                self.own, self.logged, self._recovered, bytes(author.ids), author.has_own,
                author.has_foreign,
            )  # fmt: skip

    return GoingOn


@contextmanager
def on_this_computer(files: Files) -> Iterator[Callable[[dict[str, object], object], object]]:
    """What puts a board together from a configuration and a port, as `boards.setup.make`.

    Its flash is `files`: CPython's files lack a call that MicroPython's have. Its AEAD is the
    host's, which gives the same bytes, its heap is never short, and it keeps code that a board
    lets go.
    """
    setup: Any = board_module("setup")
    aead: Any = board_module("aead")
    old = setup.BoardFiles, aead.Aead, setup._Setup._let_go, setup.Device
    setup.Device = _going_on(setup.Device)
    setup.BoardFiles, aead.Aead = lambda _folder: files, Aead
    setup._Setup._let_go = lambda *_: None
    gc.mem_free = lambda: _HEAP_FREE  # type: ignore[attr-defined]
    gc.mem_alloc = lambda: 0  # type: ignore[attr-defined]
    gc.freeze()  # boards collect often, and there is nothing to find in what is here already
    try:
        yield setup.make
    finally:
        gc.unfreeze()
        del gc.mem_free, gc.mem_alloc  # type: ignore[attr-defined]
        setup.BoardFiles, aead.Aead = old[:2]
        setup._Setup._let_go, setup.Device = staticmethod(old[2]), old[3]
