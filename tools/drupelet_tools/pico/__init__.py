"""A Raspberry Pi Pico in an emulator: it runs the very image that a board gets.

`runner.mjs` drives rp2040js (Node), `emulator.Pico` starts and stops it from Python.
"""
