"""From raw black boxes to tables and a report (docs/telemetry.md).

`decode`, `summary`, `energy`, `lake`, `figures`, `charts` and `report` import no Spark;
`session`, `job` and `command` do.
"""
