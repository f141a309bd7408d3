"""Where the `drupelet` command begins, before what takes a while to load."""

import gc
import os
import signal
import sys

# As drupelet_host.cli.exit_codes has it, which may not be loaded yet.
_INTERRUPTED = 130


def _open_streams() -> None:
    """Whoever closed a standard stream gets nothing to read or see; no file takes its place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
        if getattr(sys, name) is None:
            mode = "w" if descriptor else "r"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def main() -> None:
    """Run the command line and exit; Ctrl-C while it loads is Ctrl-C, too."""
    try:
        _open_streams()
        if sys.argv[1:2] == ["put"]:
            from drupelet_host.cli.publishing import run_short

            if run_short(sys.argv[2:]):
                return
        # What loads stays: the collector need not look through it, neither now nor later.
        gc.disable()
        from drupelet_host.cli.app import main as run

        gc.freeze()
        gc.enable()
        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # from here on Python would show a traceback
