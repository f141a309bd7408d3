"""Commands whose optional dependencies are not installed say which extra brings them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from drupelet_host.cli import exit_codes, extras

ROOT = Path(__file__).parents[2]
MODULES = tuple(module for listed in extras.EXTRA_MODULES.values() for module in listed)
# The command line in a Python that has none of them: what is not installed is not found.
BARE = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {MODULES!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from drupelet_host import entry
entry.main()
"""


def bare(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BARE, *words], capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["broker", "--port", "0"], "broker"),
        (["demo", "--out", "{}/demo"], "telemetry"),
        (["bench", "ram", "--set", "micro"], "flash"),
        (["bench", "cpu"], "flash"),
        (["bench", "ingest"], "bench"),
        (["telemetry", "ingest", "{}", "--lake", "{}/lake"], "telemetry"),
        (["telemetry", "report", "--lake", "{}", "--html", "{}/page.html"], "telemetry"),
        (["telemetry", "query", "SELECT 1", "--lake", "{}"], "telemetry"),
        (["telemetry", "import", "{}/x", "--mapping", "x", "--lake", "{}/lake"], "telemetry"),
        (["flash", "build", "{}/board", "--arch", "x86"], "flash"),
        (["flash", "/dev/ttyACM0"], "flash"),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_line(
    tmp_path: Path, words: list[str], extra: str
) -> None:
    done = bare(*(word.format(tmp_path) for word in words))
    lines = done.stderr.splitlines()
    assert done.returncode == exit_codes.USAGE and len(lines) == 1, done
    assert lines[0].startswith("drupelet: ") and f"pip install 'drupelet[{extra}]'" in lines[0]


@pytest.mark.parametrize("room", ["", "demo", "bench", "flash", "sim", "telemetry"])
def test_help_needs_no_extra(room: str) -> None:
    done = bare(*room.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "") and "Usage" in done.stdout


@pytest.mark.parametrize("words", ["version", "put --help", "peer add --help", "status --help"])
def test_a_verb_of_the_host_loads_no_tools(words: str) -> None:
    source = (
        "import atexit, sys; from drupelet_host import entry\n"
        "slow = ('drupelet_tools', 'importlib.metadata', 'rich', 'jinja2', 'tomlkit', 'asyncio')\n"
        "atexit.register(lambda: print([name for name in slow if name in sys.modules]))\n"
        "entry.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", source, *words.split()], capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done


@pytest.mark.parametrize("kind", ["small", "sticks"])
def test_a_world_is_simulated_without_an_extra(kind: str) -> None:
    done = bare("sim", "run", "--seed", "1", "--kind", kind)
    assert (done.returncode, done.stderr) == (0, ""), done


def test_each_module_of_an_extra_leads_to_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, listed in project["optional-dependencies"].items():
        for requirement in listed:
            if match := re.fullmatch(r"drupelet\[([a-z,]+)\]", requirement):
                assert extras.EXTRA_CONTAINS[extra] == tuple(match[1].split(","))
                continue
            name = re.split("[<>=]", requirement)[0].removesuffix("-python")
            text = extras.missing_module_text(name.replace("-", "_"))
            assert text.endswith(f"pip install 'drupelet[{extra}]'"), requirement
    assert extras.missing_module_text("py4j.protocol").endswith(
        "pip install 'drupelet[telemetry]'"
    )
    assert extras.missing_module_text("drupelet_host.gone") == ""
