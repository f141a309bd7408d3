"""Writes the files that are made from the code: `python -m drupelet_tools.docs`.

docs/limits.md comes from firmware/drupelet/base/limits.py, package.json (what `mip` installs)
from the modules of set `small`, the tables of docs/bench.md from docs/bench. tests/test_tidy.py
compares them with what this makes.
"""

import ast
import json
import re
from importlib import import_module
from pathlib import Path

from drupelet import __version__
from drupelet_tools.bench import page as bench_page
from drupelet_tools.flash import sets
from drupelet_tools.flash.build import ROOT

FIRMWARE = ROOT / "firmware"
# Boards that are no process and no emulator.
BOARDS_BY_MIP = ("esp32", "nrf", "rp2", "stm32")
# Packages of micropython-lib that a board's code imports, by name and version.
DEPENDENCIES = (("sdcard", "0.2.0"),)
_HEADING = re.compile(r"^# --- (.*?) ---$")
_LIMITS_HEAD = """# Limits

Every bound of the core, its value and why it has that value. Made from
`firmware/drupelet/base/limits.py` by `python -m drupelet_tools.docs`; change it there.
"""


def _reason(lines: list[str], index: int) -> str:
    """Return the comment beside lines[index], else the block directly above it."""
    beside = lines[index].partition("  # ")[2]
    if beside:
        return beside.strip()
    first = index
    while lines[first - 1].startswith("# ") and not _HEADING.match(lines[first - 1]):
        first -= 1
    return " ".join(line.removeprefix("# ").strip() for line in lines[first:index])


def limits(source: str) -> list[tuple[str, str, str]]:
    """Return (section, name, reason) of each public constant in the source of limits.py."""
    lines = source.splitlines()
    headings = {i: m.group(1) for i, line in enumerate(lines) if (m := _HEADING.match(line))}
    rows = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if name.startswith("_"):
            continue
        section = next((headings[i] for i in range(node.lineno - 1, -1, -1) if i in headings), "")
        rows.append((section, name, _reason(lines, node.lineno - 1)))
    return rows


def limits_page() -> str:
    """Return the text of docs/limits.md."""
    values = vars(import_module("drupelet.base.limits"))
    parts = [_LIMITS_HEAD]
    present = None
    for section, name, reason in limits((FIRMWARE / "drupelet/base/limits.py").read_text("utf-8")):
        if section != present:
            title = section[:1].upper() + section[1:]
            parts.append(f"\n## {title}\n\n| limit | value | reason |\n|---|---|---|\n")
            present = section
        text = reason.replace("|", "\\|")
        parts.append(f"| `{name}` | {values[name]:,} | {text} |\n")
    return "".join(parts)


def _package_rows() -> list[tuple[str, str]]:
    """(path on the board, path in the clone) of each module that `mip` installs: set `small`.

    With all profiles and carriers, for every chip: what channels and commands need is in images
    and comes with `drupelet flash --set full`; with it the sources would fill a Pico's drive.
    """
    names = {name for board in BOARDS_BY_MIP for name in sets.modules("small", board)}
    names.add("boards.from_source")
    clone = {"boards": "firmware", "drupelet": "firmware", "drupelet_transports": "transports"}
    paths = []
    for name in names:
        path = Path(*name.split("."))
        root = ROOT / clone[path.parts[0]]
        whole = path / "__init__.py" if (root / path).is_dir() else path.with_suffix(".py")
        paths.append((whole.as_posix(), (root / whole).relative_to(ROOT).as_posix()))
    return sorted(paths)


def package_json() -> str:
    """Return the text of package.json, from which `mip` installs a node."""
    listed = ",\n".join(f"        {json.dumps(row)}" for row in _package_rows())
    deps = ",\n".join(f"        {json.dumps(row)}" for row in DEPENDENCIES)
    return (
        f'{{\n    "urls": [\n{listed}\n    ],\n    "deps": [\n{deps}\n    ],\n'
        f'    "version": "{__version__}"\n}}\n'
    )


def generated() -> dict[Path, str]:
    """Return path -> text of every file that is generated from the code."""
    bench = ROOT / "docs/bench.md"
    return {
        ROOT / "docs/limits.md": limits_page(),
        ROOT / "package.json": package_json(),
        bench: bench_page.filled(bench.read_text("utf-8"), ROOT / "docs/bench"),
    }


def main() -> None:
    """Write every generated file that is not up to date, and print its path."""
    for path, text in generated().items():
        if not path.is_file() or path.read_text("utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
