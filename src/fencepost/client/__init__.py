"""The SDK for a fencepost in another process: `fencepost.connect`. See `remote`; the API itself is `wire`."""
