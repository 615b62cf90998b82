"""The lake: one Delta table per published asset, replaced day by day in atomic commits."""
