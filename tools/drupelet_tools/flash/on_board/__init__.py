"""Programs that `drupelet flash TARGET` runs at a board's prompt, on MicroPython."""
