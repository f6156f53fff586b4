"""The agent in a terminal: `fencepost` and `fencepost chat`."""
