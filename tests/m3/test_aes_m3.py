"""AES for ports without cryptolib, on a Cortex-M3: the host's bytes, and what a frame costs."""

from pathlib import Path

from board.aes_frames import frames, write_frames
from drupelet_tools.m3 import drive
from drupelet_tools.m3.image import compiled, image
from drupelet_tools.m3.machine import Machine, Start

# A sealed frame of 100 bytes, in instructions.
SEAL_MAX = 500_000
RUN_S = 120


def run(path: Path, answers: Path) -> dict[str, int]:
    """What the script on the board says."""
    text = Path(__file__).with_name("aes_on_board.py").read_text("utf-8")
    drive.write(path, {
        "/aes.mpy": compiled("aes.py", text), "/main.py": b"import aes\n",
        "/frames.txt": answers.read_bytes(),
    })  # fmt: skip
    with Machine(Start(image("small"), path, 128 * 1024, counted=True)) as board:
        lines = board.wait_for(b"end\r\n", RUN_S, b">>> ").decode().splitlines()
    assert lines[-1] == "end", lines
    return {line.split()[0]: int(line.split()[1]) for line in lines[:-1]}


def test_a_sealed_frame_is_the_hosts_and_cheap(tmp_path: Path) -> None:
    answers = write_frames(tmp_path / "frames.txt")
    first, again = (run(tmp_path / "drive", answers) for _ in range(2))
    assert first["same"] == len(frames())
    assert first["instructions"] <= SEAL_MAX
    assert abs(first["instructions"] - again["instructions"]) <= first["instructions"] // 100
