"""The deterministic simulator: real nodes, stores and seals in a world that tries to break them.

One world is one thread. Time, randomness, flash and carriers are handed in, so a seed and a commit
replay a run to the bit. `world` has the API, `oracle` judges, `faults` draws what goes wrong.
"""

# What `run` can run, as docs/simulator.md 1 has them.
KINDS = (
    "field", "drops", "yearly", "week", "storm", "small", "sticks", "plans", "resets", "views",
    "channel",
)  # fmt: skip
# `cuts` has a command of its own, and a soak.
SOAK_KINDS = (*KINDS, "cuts")
# A soak in which every kind gets the same time.
EACH = "each"
