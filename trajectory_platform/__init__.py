"""trajectory-platform: from the daily stream of agent traces to a small model that can act.

Importing this package does no work: no environment is read and no heavy package is loaded.
Start at ``docs/architecture.md`` for the flow, or at ``trajectory_platform.cli`` for the commands.
"""

__version__ = "0.1.0"
