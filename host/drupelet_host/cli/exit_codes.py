"""The exit statuses of the `drupelet` command, and which error ends with which.

Scripts tell by them what to do next: try again later, mend the call or drupelet.toml, bring a
copy, or name something that exists. Every other module takes its status from here.
"""

import sqlite3

OK = 0
REFUSED = 1
USAGE = 2
DAMAGED = 3
NOT_THERE = 4
WARNINGS = 10
ALARMS = 11
INTERRUPTED = 130

MEANINGS = {
    OK: "done",
    REFUSED: "refused for now, or failed: an agent runs or does not run, a table or disk is full,"
    " a carrier or another program is away; a check of `doctor` or a simulation failed",
    USAGE: "wrong usage, wrong configuration, a private file that others can read, or an extra"
    " that is not installed: repeating it does not help",
    DAMAGED: "a store, a key or a file of ours is damaged, or a newer version wrote it",
    NOT_THERE: "the home, file, peer or channel that was named does not exist",
    WARNINGS: "`telemetry alerts` found warnings, and no alarm",
    ALARMS: "`telemetry alerts` found alarms",
    INTERRUPTED: "interrupted by Ctrl-C",
}  # fmt: skip

# By name, because most of these classes belong to modules that few commands load. The most
# derived class of an error that stands here decides.
BY_CLASS = {
    "CapacityError": REFUSED,
    "ConfigError": USAGE,
    "DamagedError": DAMAGED,
    "MissingExtraError": USAGE,
    "KeysError": REFUSED,
    "ModuleNotFoundError": USAGE,
    "NoTerminalError": USAGE,
    "NotLocalError": USAGE,
    "NotThereError": NOT_THERE,
    "FileNotFoundError": NOT_THERE,
    "PrivateError": USAGE,
    "UnicodeEncodeError": USAGE,
}
_DAMAGED_SQLITE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def status_of(error: BaseException) -> int:
    """The exit status for an error: by its cause, if the system says one, else by its class."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, FileNotFoundError):
        return NOT_THERE
    for failure in (error, cause):
        if isinstance(failure, sqlite3.Error):
            code = getattr(failure, "sqlite_errorcode", None) or 0
            return DAMAGED if code & 0xFF in _DAMAGED_SQLITE else REFUSED
    classes = [ancestor.__name__ for ancestor in type(error).__mro__]
    if isinstance(cause, OSError) and "PrivateError" not in classes:
        return REFUSED  # the system may let us another time
    return next((BY_CLASS[name] for name in classes if name in BY_CLASS), REFUSED)


def table() -> list[tuple[str, str]]:
    """Each status and what it means, for docs/cli.md and the man page."""
    return [(str(status), text) for status, text in MEANINGS.items()]
