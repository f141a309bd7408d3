"""The deterministic simulator: real nodes, stores and seals in a world that tries to break them.

One world is one thread. Time, randomness, flash and carriers are handed in, so a seed and a commit
replay a run to the bit. `world` has the API, `oracle` judges, `faults` draws what goes wrong.
"""
