"""The wheel in environments that hold what one extra brings and nothing else.

Each environment is made without a network: pip installs the wheel, and what its metadata requires
is linked there from the packages of this environment, as far as the requirements lead.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from drupelet_host.cli import exit_codes, extras

ROOT = Path(__file__).parents[2]
EXTRAS = ("", *extras.EXTRA_MODULES)
# As du counts megabytes.
BASE_BYTES_MAX = 45 << 20
TIMEOUT_S = 300
# Every command of the program, as a list of words, and what its --help prints.
ALL_HELPS = """
import json, typer
from drupelet_host.cli import app
app.load_commands()

def walk(command, context, words):
    yield words, command.get_help(context)
    for verb in getattr(command, "list_commands", lambda _: ())(context):
        child = command.get_command(context, verb)
        with child.make_context(verb, [], parent=context, resilient_parsing=True) as inner:
            yield from walk(child, inner, [*words, verb])

command = typer.main.get_command(app.app)
with command.make_context("drupelet", [], resilient_parsing=True) as context:
    print(json.dumps(list(walk(command, context, []))))
"""
# Runs command lines, each in a fork of a process that has loaded the command, without a terminal.
ALL_LINES = """
import json, os, sys
from drupelet_host import entry
from drupelet_host.cli import app
import drupelet_tools.cli
results = []
for number, words in enumerate(json.loads(sys.argv[1])):
    path = f"{sys.argv[2]}/{number}"
    pid = os.fork()
    if not pid:
        sys.argv[1:] = words
        with open(path, "w") as file:
            os.dup2(file.fileno(), 2)
        try:
            entry.main()
        except SystemExit as error:
            sys.stderr.flush()
            os._exit(error.code or 0)
        os._exit(99)
    _, status = os.waitpid(pid, 0)
    with open(path) as file:
        results.append((os.waitstatus_to_exitcode(status), file.read()))
print(json.dumps(results))
"""
# Commands that lack something where only the base is installed, and the extra that brings it.
NEEDS = {
    "broker --port 0": "broker",
    "demo --out {}/demo": "telemetry",
    "bench agent": "flash",
    "bench board": "flash",
    "bench cpu": "flash",
    "bench ingest": "bench",
    "bench ram --set micro": "flash",
    "bench rooms": "flash",
    "bench wire": "flash",
    "flash /dev/ttyACM0": "flash",
    "flash build {}/board --arch x86": "flash",
    "flash image rp2": "flash",
    "sim fleet --nodes 5 --master local[1]": "telemetry",
    "telemetry import {}/x --mapping x --lake {}/lake": "telemetry",
    "telemetry ingest {} --lake {}/lake": "telemetry",
    "telemetry query SELECT --lake {}": "telemetry",
    "telemetry report --lake {} --html {}/page.html": "telemetry",
    "telemetry serve {}/lake --once": "telemetry",
}


class Installed:
    """An environment with the wheel and what one extra brings.

    base: the one that pip installed the wheel into; without it pip does that here.
    """

    def __init__(
        self, folder: Path, wheel: Path, extra: str, installer: Path, base: "Installed | None"
    ) -> None:
        venv.create(folder)
        self.folder = folder
        self._installer = installer
        self.packages = next(folder.glob("lib/python*/site-packages"))
        if base is None:
            self.pip("install", "--quiet", "--no-index", "--no-deps", str(wheel))
        else:
            self._link_from(base)
        own = PathDistribution(next(self.packages.glob("drupelet-*.dist-info")))
        self.others = closure(own, extra)
        for other in self.others.values():
            for entry in top_level(other):
                (self.packages / entry).symlink_to(other.locate_file(entry))

    def _link_from(self, base: "Installed") -> None:
        """What pip did in the other environment, which does not depend on the extra."""
        for path in base.packages.glob("drupelet*"):
            (self.packages / path.name).symlink_to(path)
        script = (base.folder / "bin/drupelet").read_text()
        own = self.folder / "bin/drupelet"
        own.write_text(script.replace(str(base.folder), str(self.folder)))
        own.chmod(0o755)

    def pip(self, *words: str) -> str:
        python = str(self.folder / "bin" / "python")
        return self._run(
            [str(self._installer), "-m", "pip", "--python", python, *words], True
        ).stdout

    def python(self, source: str, *words: str) -> str:
        return self._run([str(self.folder / "bin" / "python"), "-c", source, *words], True).stdout

    def drupelet(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.folder / "bin" / "drupelet"), *words], False)

    def _run(self, command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        # Neither this tree nor this environment may help out.
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH",)}
        return subprocess.run(
            command, env=kept | {"PATH": f"{self.folder}/bin:/usr/bin:/bin"}, cwd=self.folder,
            capture_output=True, text=True, timeout=TIMEOUT_S, check=check,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip


def closure(own: Distribution, extra: str) -> dict[str, Distribution]:
    """All distributions that `pip install 'drupelet[extra]'` would bring, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(own, wanted) for wanted in ("", extra)]
    while waiting:
        of, wanted = waiting.pop()
        for text in of.requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": wanted}):
                continue
            name = re.sub("[-_.]+", "-", requirement.name).lower()
            other = own if name == "drupelet" else distribution(name)
            assert requirement.specifier.contains(other.version), f"{text}: {other.version}"
            if name != "drupelet":
                found[name] = other
            for inner in ("", *requirement.extras):
                if (name, inner) not in seen:
                    seen.add((name, inner))
                    waiting.append((other, inner))
    return found


def top_level(of: Distribution) -> set[str]:
    """What of a distribution stands directly in site-packages; no scripts, no caches."""
    assert of.files
    return {file.parts[0] for file in of.files} - {"..", "__pycache__"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has pip: one for all, because making it takes a while."""
    folder = tmp_path_factory.mktemp("installer") / "venv"
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, wheel: Path, installer: Path) -> Installed:
    """`pip install drupelet`, without any extra."""
    return Installed(tmp_path_factory.mktemp("base") / "venv", wheel, "", installer, None)


@pytest.fixture(scope="module", params=EXTRAS, ids=lambda extra: extra or "base")
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, wheel: Path,
    installer: Path, base: Installed,
) -> tuple[str, Installed]:  # fmt: skip
    extra: str = request.param
    if not extra:
        return extra, base
    folder = tmp_path_factory.mktemp(extra) / "venv"
    return extra, Installed(folder, wheel, extra, installer, base)


def contained(extra: str) -> set[str]:
    """An extra and those in it."""
    inner = extras.EXTRA_CONTAINS.get(extra, ())
    return {extra}.union(*(contained(other) for other in inner))


def test_an_extra_is_complete_and_no_more(installed: tuple[str, Installed]) -> None:
    extra, environment = installed
    assert "No broken requirements" in environment.pip("check")
    names = [name for names in extras.EXTRA_MODULES.values() for name in names]
    source = "import json, sys\nfrom importlib.util import find_spec\n"
    there = json.loads(
        environment.python(f"{source}print(json.dumps([n for n in {names!r} if find_spec(n)]))")
    )
    wanted = [
        name
        for other, names in extras.EXTRA_MODULES.items()
        for name in names
        if other in contained(extra)
    ]
    assert there == wanted


def test_the_help_of_every_verb(installed: tuple[str, Installed]) -> None:
    _extra, environment = installed
    helps = {tuple(words): text for words, text in json.loads(environment.python(ALL_HELPS))}
    assert {("agent",), ("broker",), ("telemetry", "ingest"), ("bench", "ram")} <= set(helps)
    assert all("Usage: drupelet" in text for text in helps.values())
    done = environment.drupelet("--help")
    assert (done.returncode, done.stderr) == (0, "")
    rooms = {words[0] for words in helps if words}
    assert all(f"\n  {room}" in done.stdout for room in rooms)


def test_what_an_extra_lacks_is_one_line(installed: tuple[str, Installed], tmp_path: Path) -> None:
    extra, environment = installed
    lacking = {line: needed for line, needed in NEEDS.items() if needed not in contained(extra)}
    lines = [[word.format(tmp_path) for word in line.split()] for line in lacking]
    errors = tmp_path / "errors"
    errors.mkdir()
    text = environment.python(ALL_LINES, json.dumps(lines), str(errors))
    results = json.loads(text.splitlines()[-1])
    assert len(results) == len(lacking)
    for (line, needed), (code, printed) in zip(lacking.items(), results, strict=True):
        named = re.fullmatch(r"drupelet: .* pip install 'drupelet\[([a-z]+)\]'\n", printed)
        assert code == exit_codes.USAGE and named, (line, code, printed)
        # The line names what the command needs, or a part of it that is smaller.
        assert named[1] in contained(needed) - contained(extra), (line, printed)
        assert extra or named[1] == needed, (line, printed)


def test_what_an_extra_brings_runs(installed: tuple[str, Installed], tmp_path: Path) -> None:
    """Of the base a home, a message and a simulated world; of each extra a command."""
    extra, environment = installed
    if not extra:
        _base_runs(environment, tmp_path)
    if extra == "flash":
        done = environment.drupelet(
            *("flash", "build", str(tmp_path / "board"), "--arch", "x86", "--set", "micro")
        )
        assert done.returncode == 0, done
        assert any((tmp_path / "board").rglob("*.mpy"))
    if extra in ("broker", "telemetry"):
        command = [str(environment.folder / "bin" / "drupelet"), "broker", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("mqtt://127.0.0.1:")
            process.terminate()
            assert process.wait(TIMEOUT_S) == 0


def _base_runs(environment: Installed, tmp_path: Path) -> None:
    page = environment.folder / "share" / "man" / "man1" / "drupelet.1"
    assert page.read_bytes() == (ROOT / "docs" / "drupelet.1").read_bytes()
    home = ["--home", str(tmp_path / "home")]
    for words in (
        ["init", "--name", "a", "--group", "g", *home],
        ["put", "hello", *home],
        ["status", *home],
        ["log", *home],
        ["doctor", *home],
        ["peers", *home],
        ["id", "--qr", *home],
        ["backup", str(tmp_path / "saved"), *home],
        ["sim", "run", "--seed", "1", "--kind", "small"],
    ):
        done = environment.drupelet(*words)
        assert (done.returncode, done.stderr) == (0, ""), done


def test_templates_styles_and_scripts_are_in_the_wheel(wheel: Path) -> None:
    packages = [ROOT / "host" / "drupelet_host", ROOT / "tools" / "drupelet_tools"]
    paths = [
        path.relative_to(package.parent).as_posix()
        for package in packages
        for folder in package.rglob("page")
        for path in folder.rglob("*.*")
        if path.suffix != ".pyc"
    ]
    wanted = {
        "drupelet_tools/telemetry/page/templates/report.html",
        "drupelet_host/view/page/web.css",
    }
    assert wanted <= set(paths)
    paths.append("drupelet_tools/telemetry/monitor/grafana/fleet.json")
    with zipfile.ZipFile(wheel) as content:
        assert set(paths) <= set(content.namelist())


def test_the_base_is_small(tmp_path: Path, wheel: Path) -> None:
    """What pip leaves on a disk, with the bytecode that it compiles."""
    copies = tmp_path / "copies"
    with zipfile.ZipFile(wheel) as content:
        content.extractall(copies / "drupelet")
    own = PathDistribution(next((copies / "drupelet").glob("*.dist-info")))
    for name, other in closure(own, "").items():
        for entry in top_level(other):
            source = Path(str(other.locate_file(entry)))
            target = copies / name / entry
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
    # Bytecode holds the path of its source: here one as on a host, not that of the test.
    # cffi has a module that no Python 3 compiles; pip leaves that as it is, too.
    place = "/opt/drupelet/lib/python3.11/site-packages"
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "-s", str(copies), "-p", place, str(copies)],
        env={key: value for key, value in os.environ.items() if key != "PYTHONPYCACHEPREFIX"},
        capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    sizes = {
        folder.name: sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for folder in copies.iterdir()
    }
    assert list(copies.rglob("*.pyc")) and sizes["cryptography"] > 5_000_000  # all was counted
    assert not {"amqtt", "psutil", "pyyaml", "numpy", "pyspark"} & set(sizes)
    assert sum(sizes.values()) <= BASE_BYTES_MAX, sizes
    print(f"{sum(sizes.values()):,} bytes: {sizes}")
