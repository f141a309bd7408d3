"""The host's database: messages, bodies, channels, and what others leave for the agent."""
