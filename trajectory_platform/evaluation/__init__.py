"""Evaluation of a checkpoint; it knows policies and traces, never how a checkpoint was trained."""
