"""What a build computed before is taken from the cache, as it would be computed again."""

import json
from pathlib import Path

import pytest

import compiled
from drupelet_tools.flash import build, kept, sets
from drupelet_tools.flash.sets import Choice, build_set

SET = Choice("micro")


def contents(folder: Path) -> dict[str, bytes]:
    """Path within a folder -> bytes, of all its files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one."""
    compiled.forget(monkeypatch)
    place = tmp_path / "cache"
    monkeypatch.setattr(kept, "folder", lambda: place)
    return place


def test_a_set_from_the_cache_is_the_one_that_is_compiled(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("computed", "kept"):
        build_set(tmp_path / name, "x86", SET, in_place=True)
    assert any(cache.rglob("*"))
    compiled.forget(monkeypatch)
    build_set(tmp_path / "alone", "x86", SET, in_place=True)
    wanted = contents(tmp_path / "alone")
    assert contents(tmp_path / "computed") == contents(tmp_path / "kept") == wanted != {}


@pytest.mark.usefixtures("cache")
def test_a_source_that_changes_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.build(tmp_path / "before", "x86")
    sources = list(build.board_sources("unix"))
    changed = tmp_path / "errors.py"
    name = Path("drupelet/base/errors.py")
    text = next(source for source, path in sources if path == name).read_text("utf-8")
    changed.write_text(text + "\nADDED = print\n", "utf-8")
    with monkeypatch.context() as patch:
        edited = [(changed if path == name else source, path) for source, path in sources]
        patch.setattr(build, "board_sources", lambda _: iter(edited))
        compiled.clear_caches()
        build.build(tmp_path / "after", "x86")
    compiled.clear_caches()
    before, after = contents(tmp_path / "before"), contents(tmp_path / "after")
    differing = {path for path in before if before[path] != after[path]}
    assert differing == {name.with_suffix(".mpy").as_posix()}


@pytest.mark.usefixtures("cache")
def test_a_table_that_changes_makes_another_set(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sets.texts(Choice("small"), "x86")
    table = json.loads(json.dumps(sets.table()))
    table["sets"]["small"]["number"] += 1
    monkeypatch.setattr(sets, "table", lambda: table)
    after = sets.texts(Choice("small"), "x86")
    assert before.keys() == after.keys()
    assert [name for name in before if before[name] != after[name]] == ["boards.setup"]


@pytest.mark.usefixtures("cache")
def test_texts_that_join_to_the_same_are_different_sources() -> None:
    assert kept.kept("k", ("ab", "c"), lambda: 1) == kept.kept("k", ("ab", "c"), lambda: 2) == 1
    assert kept.kept("k", ("a", "bc"), lambda: 3) == 3
    assert kept.kept("other", ("ab", "c"), lambda: 4) == 4


def test_a_cache_that_cannot_be_written_keeps_nothing(cache: Path) -> None:
    cache.write_text("a file")
    assert [kept.kept("k", ("a",), lambda number=number: number) for number in (1, 2)] == [1, 2]


@pytest.mark.usefixtures("cache")
def test_what_fails_is_not_kept() -> None:
    def fail() -> int:
        raise ValueError("not compiled")

    with pytest.raises(ValueError, match="not compiled"):
        kept.kept("k", ("a",), fail)
    assert kept.kept("k", ("a",), lambda: 5) == 5
