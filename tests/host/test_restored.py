"""A store that was put back is noticed until what follows from it is durable."""

import json
import shutil
from pathlib import Path

import pytest

from drupelet.base.errors import E_STORAGE, StorageError
from drupelet_host.store import database, restored
from drupelet_host.store.sqlite_store import SqliteStore

PEER = b"bbbb"


def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    store.open()
    return store


def put_back(folder: Path) -> tuple[Path, Path]:
    """A store with older content than its agent's last word tells of; both paths."""
    path, status = folder / "store.db", folder / "status.json"
    store = opened(path)
    restored.notice(store, status, [PEER])
    store.next_boot()
    store.close()
    shutil.copy(path, folder / "old.db")
    store = opened(path)
    store.next_boot()
    status.write_text(json.dumps({"store": restored.mark(store)}))
    store.close()
    path.write_bytes((folder / "old.db").read_bytes())  # the same file: its number tells nothing
    return path, status


def test_a_first_start_that_fails_does_not_forget_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: without the agent's last word the next start would notice nothing."""
    path, status = put_back(tmp_path)
    store = opened(path)

    def full(store: SqliteStore) -> int:
        store.failure = "the disk is full"
        return E_STORAGE

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "barrier", full)
        with pytest.raises(StorageError, match="the disk is full"):
            restored.notice(store, status, [PEER])
    store.close()
    assert status.exists()
    store = opened(path)
    assert restored.notice(store, status, [PEER])
    store.close()


def test_what_follows_from_it_is_durable_before_the_evidence_goes(tmp_path: Path) -> None:
    path, status = put_back(tmp_path)
    store = opened(path)
    before = store.store_gen
    assert restored.notice(store, status, [PEER]) and not status.exists()
    store.close()  # nothing of what is not committed
    store = opened(path)
    assert store.store_gen != before
    assert database.meta_int(store.connection, restored.LOST + PEER.hex(), 0) == 1
    assert not restored.notice(store, status, [PEER])
    store.close()
