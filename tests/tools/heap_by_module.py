"""Runs on a board: import each module named on the command line and print what it cost.

One line of JSON a module: [name, bytes of heap that stay in use after a collection].
"""

import gc
import sys

gc.threshold(2048)
gc.collect()
print(f'["start", {gc.mem_alloc()}]')
for name in sys.argv[1:]:
    before = gc.mem_alloc()
    __import__(name)
    gc.collect()
    print(f'["{name}", {gc.mem_alloc() - before}]')
gc.collect()
print(f'["all", {gc.mem_alloc()}]')
