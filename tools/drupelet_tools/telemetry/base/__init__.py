"""What all of the telemetry tools share: errors, paths and URIs, temporary folders, memory."""
