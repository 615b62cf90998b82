"""Which traces fed which checkpoint, and what was decided about a trace on the way."""
