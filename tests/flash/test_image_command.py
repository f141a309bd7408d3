"""`drupelet flash image --json`; tests/pico builds images and runs them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from drupelet_tools.cli import flash
from drupelet_tools.image import build


@pytest.mark.parametrize("has_trace", [True, False])
def test_image_says_what_it_wrote_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_trace: bool
) -> None:
    built = tmp_path / "built.uf2"
    built.write_bytes(bytes(512))
    if has_trace:
        build.trace_of(built).write_text("{}")
    monkeypatch.setattr(build, "build_image", lambda _choice: built)
    out = tmp_path / "pico.uf2"
    done = CliRunner().invoke(flash, ["image", "rp2", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    trace = tmp_path / "pico.trace.json"
    assert json.loads(done.stdout) == {
        "image": str(out), "bytes": 512, "board": "rp2", "set": "small",
        "trace": str(trace) if has_trace else None,
    }  # fmt: skip
    assert out.stat().st_size == 512 and trace.is_file() == has_trace
