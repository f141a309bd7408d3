# Sourced by tools/test and tools/check, from the root of the repository: `bin`, the commands of the
# environment, and compiled modules kept in the cache. The tests start Python several thousand
# times, and without this each would compile anew what it imports, where the environment says so.
bin=.venv/bin
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="${DRUPELET_CACHE:-$PWD/.cache}/bytecode"
# Tests run modules in folders of their own, which never come again.
rm -rf "$PYTHONPYCACHEPREFIX${TMPDIR:-/tmp}"
# What builds have kept (drupelet_tools/flash/kept.py) and nobody has used for days.
find "${DRUPELET_CACHE:-$PWD/.cache}/compiled" -type f -mtime +3 -delete 2>/dev/null || true
