"""The sources of an image, unpacked once from the archives that tools/setup fetched.

tools/image.lock names each archive with its SHA-256. The tree that they make has what MicroPython
expects as submodules in its place, and lies in the cache under the hash of the lock.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from drupelet_tools.flash.build import ROOT
from drupelet_tools.flash.errors import BuildError
from drupelet_tools.flash.flatten import JOINED

LOCK = ROOT / "tools/image.lock"
_UNPACK_TIMEOUT_S = 120
IN_FLASH = Path(__file__).with_name("in_flash")
# Modules that a board keeps, with many functions: of the set, and the M3's flash.
_IN_FLASH = (
    JOINED, "drive",
    *(f"drupelet.base._{name}_viper" for name in ("aes", "blake2s", "ccm", "memory", "murmur")),
)  # fmt: skip
_INCLUDE = '#include "py/in_flash.h"\n'
# Changes of MicroPython 1.25: a file, a piece of its text, and what stands there instead.
_CHANGES = (
    # Machine code of ARMv6-M reads its constants from words behind it, whose address is a multiple
    # of 4. Frozen at another address it reads wrong ones: a CRC-32 is wrong then, and nothing else
    # says so.
    ("tools/mpy-tool.py", "__attribute__ ((aligned (2)))", "__attribute__ ((aligned (4)))"),
    # Python code may go down to 256 bytes above the end of the stack's 8 KB, and the heap ends
    # right below. On top of it come LittleFS (900 bytes where it compacts), the USB task, which a
    # read of the flash lets run (500), and an interrupt: so 1,792 lie between.
    (
        "ports/rp2/memmap_mp_rp2040.ld",
        "__GcHeapEnd = ORIGIN(RAM) + LENGTH(RAM);",
        "__GcHeapEnd = ORIGIN(RAM) + LENGTH(RAM) - 1792;",
    ),
    # The order of files in a folder is the file system's, and would be that of modules in flash.
    (
        "tools/manifestfile.py",
        """\
            for dirpath, _, filenames in os.walk(package_path or ".", followlinks=True):
                for file in filenames:
""",
        """\
            for dirpath, _, filenames in sorted(os.walk(package_path or ".", followlinks=True)):
                for file in sorted(filenames):
""",
    ),
    # Of the 70 files of Mbed TLS an image has four, for its hashes and AES; the linker would leave
    # out what the others came to.
    (
        "extmod/extmod.cmake",
        "    target_sources(micropy_lib_mbedtls INTERFACE\n",
        "    target_sources(micropy_lib_mbedtls INTERFACE\n"
        + "".join(
            f"        ${{MICROPY_LIB_MBEDTLS_DIR}}/library/{name}.c\n"
            for name in ("aes", "platform_util", "sha1", "sha256")
        )
        + "    )\n    set(NOT_IN_AN_IMAGE\n",
    ),
    # Functions and classes of some modules are constants in flash: in_flash/layout.py.
    (
        "tools/mpy-tool.py",
        "        cm.freeze(idx)\n",
        "        cm.freeze(idx)\n"
        f'    __import__("layout").emit(sys.modules[__name__], compiled_modules, {_IN_FLASH})\n',
    ),
    (
        "py/objmodule.c",
        "mp_obj_t mp_obj_new_module(qstr module_name) {\n",
        f"{_INCLUDE}MP_REGISTER_ROOT_POINTER(void *in_flash_contexts[4 * 8]);\n\n"
        "mp_obj_t mp_obj_new_module(qstr module_name) {\n",
    ),
    (
        "py/objmodule.c",
        "mp_module_context_t *o = m_new_obj(mp_module_context_t);",
        "mp_module_context_t *o = in_flash_context(qstr_str(module_name));",
    ),
    (
        "py/runtime.c",
        "    // init global module dict\n",
        "    in_flash_init();\n\n    // init global module dict\n",
    ),
    ("py/runtime.c", '#include "py/stream.h"\n', f'#include "py/stream.h"\n{_INCLUDE}'),
    (
        "py/emitglue.c",
        "    // def_args must be MP_OBJ_NULL or a tuple\n",
        "    mp_obj_t in_flash = in_flash_function(proto_fun, context, def_args);\n"
        "    if (in_flash != MP_OBJ_NULL) {\n"
        "        return in_flash;\n"
        "    }\n\n"
        "    // def_args must be MP_OBJ_NULL or a tuple\n",
    ),
    ("py/emitglue.c", '#include "py/bc.h"\n', f'#include "py/bc.h"\n{_INCLUDE}'),
    (
        "py/modbuiltins.c",
        "    // set the new classes __locals__ object\n",
        "    mp_obj_t in_flash = in_flash_class(n_args, args);\n"
        "    if (in_flash != MP_OBJ_NULL) {\n"
        "        return in_flash;\n"
        "    }\n\n"
        "    // set the new classes __locals__ object\n",
    ),
    ("py/modbuiltins.c", '#include "py/stream.h"\n', f'#include "py/stream.h"\n{_INCLUDE}'),
    # A class in flash has this flag already, and cannot be written.
    (
        "py/objtype.c",
        "            t->flags |= MP_TYPE_FLAG_IS_SUBCLASSED;\n",
        "            if (!(t->flags & MP_TYPE_FLAG_IS_SUBCLASSED)) {\n"
        "                t->flags |= MP_TYPE_FLAG_IS_SUBCLASSED;\n"
        "            }\n",
    ),
    *(
        ("py/objtype.c", f"static {function}(", f"{function}(")
        for function in (
            "mp_obj_t mp_obj_instance_make_new",
            "void instance_print",
            "mp_obj_t instance_unary_op",
            "mp_obj_t instance_binary_op",
            "void mp_obj_instance_attr",
            "mp_obj_t instance_subscr",
            "mp_int_t instance_get_buffer",
        )
    ),
    ("py/objtype.c", '#include "py/runtime.h"\n', f'#include "py/runtime.h"\n{_INCLUDE}'),
)


@dataclass(frozen=True)
class Sources:
    """Folders of the unpacked sources."""

    micropython: Path
    pico_sdk: Path
    tinyusb: Path
    no_lib: Path  # stands for micropython-lib, of which an image takes nothing
    key: str  # changes when any of the archives does


def cache() -> Path:
    """Where images and what they are made of are kept."""
    return Path(os.environ.get("DRUPELET_CACHE", ROOT / ".cache")).resolve() / "image"


def key_of_sources() -> str:
    """A hash of all that the tree of sources is made of."""
    digest = hashlib.sha256(f"{LOCK.read_text('utf-8')}{_CHANGES}".encode())
    for path in sorted(IN_FLASH.glob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def unpack() -> Sources:
    """The sources, unpacked if they are not yet. Raises BuildError."""
    if not LOCK.is_file():
        raise BuildError(f"no {LOCK}: build an image in a clone of the project")
    lock = LOCK.read_text("utf-8")
    key = key_of_sources()
    tree = cache() / f"sources-{key}"
    if not tree.is_dir():
        archives = [_archive(line) for line in lock.splitlines() if not line.startswith("#")]
        new = tree.with_suffix(f".{os.getpid()}")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for archive in archives:
            _unpack(archive, new)
        _join(new)
        try:
            new.rename(tree)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    micropython = next(tree.glob("micropython-*"))
    return Sources(
        micropython, tree / "usr/src/pico-sdk", micropython / "lib/tinyusb", tree / "no-lib", key
    )


def _archive(line: str) -> Path:
    """The archive that a line of the lock names, checked against its hash."""
    digest, _, path = line.partition(" ")
    archive = cache() / "archives" / Path(path).name
    if not archive.is_file():
        raise BuildError(f"{archive.name} is not in the cache: run tools/setup --for-image")
    if hashlib.sha256(archive.read_bytes()).hexdigest() != digest:
        raise BuildError(f"{archive} is damaged: delete it, then run tools/setup --for-image")
    return archive


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix == ".deb":
        subprocess.run(
            ["dpkg", "-x", str(archive), str(folder)], check=True, timeout=_UNPACK_TIMEOUT_S
        )
        return
    with tarfile.open(archive) as tar:
        # Debian 12's Python has no filters; without one later ones warn.
        tar.extraction_filter = getattr(tarfile, "tar_filter", None)
        tar.extractall(folder)  # noqa: S202 - its hash was checked


def _join(tree: Path) -> None:
    """Put libraries where MicroPython looks for its submodules."""
    micropython = next(tree.glob("micropython-*"))
    for path, wrong, right in _CHANGES:
        text = (micropython / path).read_text("utf-8")
        if text.count(wrong) != 1:
            raise BuildError(f"{path} of MicroPython is not the one that the image changes")
        (micropython / path).write_text(text.replace(wrong, right), "utf-8")
    for source in IN_FLASH.glob("*.*"):
        shutil.copy(source, micropython / ("py" if source.suffix == ".h" else "tools"))
    lib = micropython / "lib"
    for name, source in (
        ("tinyusb", tree / "usr/src/tinyusb"),
        ("mbedtls", next(tree.glob("mbedtls-*"))),
    ):
        (lib / name).rmdir()
        (lib / name).symlink_to(os.path.relpath(source, lib))
    (tree / "no-lib").mkdir()
    (tree / "no-lib/README.md").write_text("An image freezes nothing of micropython-lib.\n")
