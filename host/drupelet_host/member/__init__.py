"""One member on this host without carriers: node, store, groups, identity, status and backup."""
