"""`drupelet telemetry` and its commands: options, one line per error, exit codes."""
