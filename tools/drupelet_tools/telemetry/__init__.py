"""From raw black boxes to tables and a report (docs/telemetry.md).

`decode`, `summary`, `energy`, `lake`, `figures`, `charts` and `report` import no Spark;
`session`, `job` and `command` do.
"""

import os

# Arrow's own allocator keeps tens of megabytes for each thread that once read a file; the C
# library's gives back what is free (`memory`). Arrow is told by its environment, before it begins.
ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
os.environ.setdefault(ARROW_POOL, "system")
