"""Keys of peers: chains, seals, provisioning, invitations, rotation and revocation."""
