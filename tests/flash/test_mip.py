"""A node by MicroPython's own ways: `mpremote mip install` with package.json, and manifest.py.

The index is on loopback, and in it a stand-in of ours has the name and the interface of
micropython-lib's `sdcard`: the real package is not run here.
"""

import functools
import hashlib
import http.server
import importlib.util
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drupelet_host.home import config
from drupelet_host.home.board_settings import text_of
from drupelet_tools.docs import DEPENDENCIES
from drupelet_tools.flash import alive, board_keys, repl
from drupelet_tools.flash.deliver import write_file
from drupelet_tools.flash.probe import probe
from drupelet_tools.flash.settings import Wish, settings_for
from drupelet_tools.image.sources import unpack
from flash.pty_board import PtyBoard

ROOT = Path(__file__).parents[2]
MAIN = b"from boards.from_source import run\n\nrun('rp2')\n"  # as docs/boards.md says
# What boards/card.py uses of the driver: the block device of a card on a bus.
SDCARD = b'''"""A stand-in for micropython-lib's sdcard."""


class SDCard:
    def __init__(self, spi, cs, baudrate=1320000):
        self.spi, self.cs, self.baudrate = spi, cs, baudrate

    def readblocks(self, block_num, buf):
        raise OSError(19)

    def writeblocks(self, block_num, buf):
        raise OSError(19)

    def ioctl(self, op, arg):
        return 0
'''


class Index(http.server.SimpleHTTPRequestHandler):
    """The clone, and below /index a package index of one package; `asked` are its paths."""

    asked: list[str] = []  # noqa: RUF012 - one server a test

    def do_GET(self) -> None:
        self.asked.append(self.path)
        name, version = DEPENDENCIES[0]
        short = hashlib.sha256(SDCARD).hexdigest()[:8]
        answers = {
            f"/index/package/6/{name}/{version}.json": json.dumps(
                {"v": 1, "hashes": [[f"{name}.py", short]], "deps": [], "version": version}
            ).encode(),
            f"/index/file/{short[:2]}/{short}": SDCARD,
        }
        if self.path not in answers:
            super().do_GET()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(answers[self.path])

    def log_message(self, *_: object) -> None:
        """Nothing on the console."""


@pytest.fixture
def index() -> Iterator[str]:
    Index.asked = []
    handler = functools.partial(Index, directory=str(ROOT))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_mip_installs_a_node_that_boots(tmp_path: Path, index: str) -> None:
    home = config.Config(tmp_path / "home", "host", bytes.fromhex("40000000"), "orchard")
    config.create(home)
    (home.home / "keys").mkdir(mode=0o700)
    package = json.loads((ROOT / "package.json").read_text())
    with PtyBoard(tmp_path, heap_kib=384) as board:
        done = subprocess.run(
            [sys.executable, "-m", "mpremote", "connect", board.target, "mip", "install",
             "--index", f"{index}/index", "--target", "/lib", f"{index}/package.json"],
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and "Done" in done.stdout, done
        assert f"/index/package/6/sdcard/{DEPENDENCIES[0][1]}.json" in Index.asked
        with repl.BoardRepl(board.target) as prompt:
            prompt.enter()
            facts = probe(prompt)
            present = prompt.call("files", "show('/lib')")
            assert present == len(package["urls"]) + 1
            source = "__import__('sdcard').SDCard(1, 2).baudrate"
            assert prompt.call("files", source) == 1320000
            wanted = settings_for(board.target, None, Wish("well-7"), home, "", "rp2040")
            write_file(prompt, "/drupelet.json", text_of(wanted))
            write_file(prompt, "/main.py", MAIN)
            peer = board_keys.know(home, board.target, facts, wanted, "")
            assert board_keys.exchange(prompt, config.load(home.home), peer, wanted, False)
        reading = alive.first_reading(config.load(home.home), peer)
    assert '"board":"well-7"' in reading


def _manifest_file() -> Any:
    """MicroPython's own reader of manifests, from Debian's source package."""
    path = unpack().micropython / "tools/manifestfile.py"
    spec = importlib.util.spec_from_file_location("manifestfile", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A micropython-lib with one package."""
    folder = tmp_path / "lib/micropython/drivers/storage/sdcard"
    folder.mkdir(parents=True)
    for name in ("python-stdlib", "python-ecosys"):
        (tmp_path / "lib" / name).mkdir()
    (folder / "manifest.py").write_text(
        f'metadata(version="{DEPENDENCIES[0][1]}")\nmodule("sdcard.py", opt=3)\n'
    )
    (folder / "sdcard.py").write_bytes(SDCARD)
    return tmp_path / "lib"


def test_manifest_is_read_by_micropython(library: Path) -> None:
    reader = _manifest_file()
    manifest = reader.ManifestFile(reader.MODE_FREEZE, {"MPY_LIB_DIR": str(library)})
    manifest.execute(str(ROOT / "firmware/manifest.py"))
    targets = {file.target_path for file in manifest.files()}
    listed = {target for target, _ in json.loads((ROOT / "package.json").read_text())["urls"]}
    assert "sdcard.py" in targets and listed <= targets
    for file in manifest.files():
        assert Path(file.full_path).is_file()


def test_manifest_without_the_library_is_refused(tmp_path: Path) -> None:
    reader = _manifest_file()
    for name in ("micropython", "python-stdlib", "python-ecosys"):
        (tmp_path / name).mkdir()
    manifest = reader.ManifestFile(reader.MODE_FREEZE, {"MPY_LIB_DIR": str(tmp_path)})
    with pytest.raises(reader.ManifestFileError, match="sdcard"):
        manifest.execute(str(ROOT / "firmware/manifest.py"))


def test_what_boards_import_of_micropython_lib_is_a_dependency() -> None:
    """Neither a module of ours nor one that is built in."""
    text = (ROOT / "firmware/boards/card.py").read_text()
    assert re.findall(r"^import (sdcard)$", text, re.M) == [name for name, _ in DEPENDENCIES]
