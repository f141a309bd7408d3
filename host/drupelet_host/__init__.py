"""The host side: agent, durable store, keys, configuration and the `drupelet` command."""
