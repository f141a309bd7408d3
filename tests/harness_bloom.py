"""What size of filter a `bloom` request asks for, as the peer of its dialect takes it.

Where a request has hashes and no bits per element, both peers look into the table of Fan, Cao,
Almeida and Broder ("Summary Cache", 2000): the first entry below the error rate, from two bits on.
"""

import struct

from drupelet.base.errors import CapacityError
from drupelet.wire.sds.bloom import parameters
from harness_values import RequestError, ranged, rate

# Bits of a filter: the core's own bound.
BITS_MAX = 1 << 22
# Hashes of a filter; what the smallest error rate that a double has would take is near.
HASHES_MAX = 1100
BILLION = 1_000_000_000

# Per number of hashes, from 1 on: bits per element of the first entry that is below 1, and from
# there to 32 bits the share of false positives, in billionths.
# fmt: off
TABLE = (
    (2, (393000000, 283000000, 221000000, 181000000, 154000000, 133000000, 118000000, 105000000,
         95200000, 86900000, 80000000, 74000000, 68900000, 64500000, 60600000, 57100000, 54000000,
         51300000, 48800000, 46500000, 44400000, 42500000, 40800000, 39200000, 37700000, 36400000,
         35100000, 33900000, 32800000, 31700000, 30800000)),
    (2, (400000000, 237000000, 155000000, 109000000, 80400000, 61800000, 48900000, 39700000,
         32900000, 27600000, 23600000, 20300000, 17700000, 15600000, 13800000, 12300000, 11100000,
         9980000, 9060000, 8250000, 7550000, 6940000, 6390000, 5910000, 5480000, 5100000, 4750000,
         4440000, 4160000, 3900000, 3670000)),
    (3, (253000000, 147000000, 92000000, 60900000, 42300000, 30600000, 22800000, 17400000,
         13600000, 10800000, 8750000, 7180000, 5960000, 5000000, 4230000, 3620000, 3120000,
         2700000, 2360000, 2070000, 1830000, 1620000, 1450000, 1290000, 1160000, 1050000, 949000,
         862000, 785000, 717000)),
    (4, (160000000, 92000000, 56100000, 35900000, 24000000, 16600000, 11800000, 8640000, 6460000,
         4920000, 3810000, 3000000, 2390000, 1930000, 1580000, 1300000, 1080000, 905000, 764000,
         649000, 555000, 478000, 413000, 359000, 314000, 276000, 243000, 215000, 191000)),
    (5, (101000000, 57800000, 34700000, 21700000, 14100000, 9430000, 6500000, 4590000, 3320000,
         2440000, 1830000, 1390000, 1070000, 839000, 663000, 530000, 427000, 347000, 285000,
         235000, 196000, 164000, 138000, 117000, 99600, 85300, 73300, 63300)),
    (6, (63800000, 36400000, 21600000, 13300000, 8440000, 5520000, 3710000, 2550000, 1790000,
         1280000, 935000, 692000, 519000, 394000, 303000, 236000, 185000, 147000, 117000, 94400,
         76600, 62600, 51500, 42600, 35500, 29700, 25000)),
    (8, (22900000, 13500000, 8190000, 5130000, 3290000, 2170000, 1460000, 1000000, 702000, 499000,
         360000, 264000, 196000, 147000, 112000, 85600, 66300, 51800, 40800, 32400, 25900, 20900,
         16900, 13800, 11300)),
    (9, (14500000, 8460000, 5090000, 3140000, 1990000, 1290000, 852000, 574000, 394000, 275000,
         194000, 140000, 101000, 74600, 55500, 41700, 31600, 24200, 18700, 14600, 11400, 9010,
         7160, 5730)),
    (11, (5310000, 3170000, 1940000, 1210000, 775000, 505000, 335000, 226000, 155000, 108000,
          75900, 54200, 39200, 28600, 21100, 15700, 11800, 8960, 6850, 5280, 4100, 3200)),
    (12, (3340000, 1980000, 1200000, 744000, 470000, 302000, 198000, 132000, 88900, 60900, 42300,
          29700, 21100, 15200, 11000, 8070, 5970, 4450, 3350, 2540, 1940)),
    (13, (2100000, 1240000, 747000, 459000, 287000, 183000, 118000, 77700, 51800, 35000, 24000,
          16600, 11600, 8230, 5890, 4250, 3100, 2280, 1690, 1260)),
    (15, (778000, 466000, 284000, 176000, 111000, 71200, 46300, 30500, 20400, 13800, 9420, 6520,
          4560, 3220, 2290, 1650, 1200, 874)),
)
# fmt: on


def single(value):
    """A number as 32-bit floating point has it."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def bits_for(k, error_rate, is_nim):
    """Bits per element for `k` hashes; the JavaScript peer's table is not quite the Nim peer's."""
    if k > len(TABLE):
        raise RequestError(f"k is at most {len(TABLE)} without bits_per_element")
    first, shares = TABLE[k - 1]
    if k == 3 and not is_nim:
        # It has the entries for 12 to 15 bits twice, and all behind them four places later.
        shares = shares[:13] + shares[9:]
    for index, share in enumerate(shares):
        entry = share / BILLION
        if (entry if is_nim else single(entry)) < error_rate:
            return first + index
    raise RequestError(f"k {k} does not reach this error_rate with 32 bits per element")


def sizes(request, is_nim):
    """Capacity, error rate, hashes and bits per element."""
    capacity = ranged(request, "capacity", 1, BITS_MAX)
    error_rate = rate(request, "error_rate")
    k = ranged(request, "k", 0, HASHES_MAX, 0)
    bits = ranged(request, "bits_per_element", 0, BITS_MAX, 0)
    if k and not bits:
        bits = bits_for(k, error_rate, is_nim)
    k, bits = parameters(capacity, error_rate, k, bits)
    if capacity * bits > BITS_MAX:
        raise CapacityError(f"a filter of {capacity} ids of {bits} bits each, at most {BITS_MAX}")
    return capacity, error_rate, k, bits
