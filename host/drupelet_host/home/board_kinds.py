"""What `board` of a peer may say in `drupelet.toml`; none of it changes what a link carries.

`drupelet telemetry` has a table of currents for each but the last two, and refuses in a
names.json what is not here; a test compares the two.
"""

# A peer that is a computer.
BOARD_HOST = "host"
# A board for which there is no table.
BOARD_UNKNOWN = "board"
BOARDS = (
    "esp32",
    "esp32c3",
    "esp32s3",
    "lorawan-mdot",
    "nrf52840-sx1262",
    "pi-4",
    "pi-5",
    "pi-zero-2w",
    "pico-w",
    "rp2040",
    BOARD_HOST,
    BOARD_UNKNOWN,
)
