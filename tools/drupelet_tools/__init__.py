"""Tools around the product: demo, telemetry pipeline, simulator, board builds, benchmarks."""
