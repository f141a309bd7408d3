"""Time on air of a LoRa frame, after the formula in the SX1276 data sheet, section 4.1.1.6.

    T_symbol = 2^SF / BW
    T        = (n_preamble + 4.25) T_symbol
             + (8 + max(ceil(B / (4 (SF - 2 DE))) (CR + 4), 0)) T_symbol
    B        = 8 PL - 4 SF + 28 + 16 CRC - 20 IH

PL is the size of the whole frame on air in bytes. DE, the optimisation for low data rates, is
on where a symbol takes more than 16 ms.
"""

from __future__ import annotations

import re

from drupelet_tools.telemetry.base.errors import TelemetryError

SPREADING_MIN, SPREADING_MAX = 6, 12
FRAME_BYTES_MAX = 255
BANDWIDTH_HZ = 125_000
PREAMBLE_SYMBOLS = 8
LOW_RATE_SYMBOL_MS = 16.0
# LoRaWAN 1.0 around an application payload: MHDR 1, FHDR 7 without options, FPort 1, MIC 4.
LORAWAN_BYTES = 13

_DATA_RATE = re.compile(r"SF(\d{1,2})(?:BW(\d{1,4}))?")


def symbol_ms(spreading: int, bandwidth_hz: int = BANDWIDTH_HZ) -> float:
    """Length of one symbol, ms."""
    if not SPREADING_MIN <= spreading <= SPREADING_MAX:
        raise TelemetryError(f"spreading factor {spreading}: LoRa has 6 to 12")
    if bandwidth_hz <= 0:
        raise TelemetryError(f"bandwidth {bandwidth_hz} Hz: must be above 0")
    return float(2**spreading) / bandwidth_hz * 1000


def time_on_air_ms(
    frame_bytes: int,
    spreading: int,
    bandwidth_hz: int = BANDWIDTH_HZ,
    *,
    coding_rate: int = 1,
    preamble_symbols: int = PREAMBLE_SYMBOLS,
    crc: bool = True,
    implicit_header: bool = False,
) -> float:
    """How long a frame occupies the air, ms.

    Args:
        frame_bytes: the whole frame on air, headers and check included, 0 to 255.
        spreading: the spreading factor, 6 to 12.
        bandwidth_hz: 125,000, 250,000 or 500,000 as a rule.
        coding_rate: 1 for 4/5 up to 4 for 4/8.
        preamble_symbols: programmed length of the preamble.
        crc: the payload's check is on (uplinks of LoRaWAN).
        implicit_header: no header on air.

    Raises:
        TelemetryError: a setting that LoRa does not have.
    """
    one_ms = symbol_ms(spreading, bandwidth_hz)
    if not 0 <= frame_bytes <= FRAME_BYTES_MAX:
        raise TelemetryError(f"a frame of {frame_bytes} bytes: LoRa has 0 to {FRAME_BYTES_MAX}")
    if not 1 <= coding_rate <= 4:
        raise TelemetryError(f"coding rate {coding_rate}: 1 (4/5) to 4 (4/8)")
    low_rate = one_ms > LOW_RATE_SYMBOL_MS
    bits = 8 * frame_bytes - 4 * spreading + 28 + 16 * crc - 20 * implicit_header
    blocks = -(-bits // (4 * (spreading - 2 * low_rate)))
    symbols = 8 + max(blocks * (coding_rate + 4), 0)
    return (preamble_symbols + 4.25 + symbols) * one_ms


def data_rate(text: str) -> tuple[int, int]:
    """Spreading factor and bandwidth in Hz of a name like `SF12BW125` or `SF7`."""
    found = _DATA_RATE.fullmatch(text.strip())
    if found is None:
        raise TelemetryError(f"data rate {text[:40]!r}: want a name like SF12BW125")
    return int(found[1]), int(found[2] or 125) * 1000
