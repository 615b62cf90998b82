"""The stages: read from the lake, call a core package, publish. One function per asset, no orchestrator.

Dagster (``defs/``), the demo and the tests run these same functions; ``defs/`` adds partitions, events and
metadata, nothing else.
"""
