"""A home whose store is lost, and whose keys are not."""

from host.conftest import Home


def wipe(home: Home) -> None:
    for path in (*home.path.glob("store.db*"), home.path / "status.json"):
        path.unlink(missing_ok=True)
