"""The folder of a home: drupelet.toml read, changed and locked, private files, carrier URLs."""
