"""Exports that others can read, their way back, and releases: one folder with data, card, rules and checksums."""
