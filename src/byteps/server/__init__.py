"""The server process around the native aggregator."""
