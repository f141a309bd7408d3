"""The `drupelet` command: its verbs and what they share."""
