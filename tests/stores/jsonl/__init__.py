"""The JSONL store."""
