"""The command as a person runs it, and how it refuses."""

import subprocess

from drupelet_host.cli import exit_codes
from host import forked
from host.conftest import COMMAND, WAIT_S


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """With options of subprocess.run the command begins with the interpreter."""
    if not options:
        return forked.run(list(words), WAIT_S)
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*COMMAND, *words], capture_output=True, text=True, timeout=60, check=False, **options
    )


def assert_refused(
    done: subprocess.CompletedProcess[str], *parts: str, status: int = exit_codes.REFUSED
) -> None:
    """This exit status, nothing on standard output, one line with every part."""
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr
