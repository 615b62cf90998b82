"""The Dagster layer: partitions, assets, checks, jobs and sensors over ``trajectory_platform.stages``.

Nothing imports this package; it only wires.
"""
