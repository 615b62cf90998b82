"""The reproduction in miniature: a small world, its miners and days, and a base that knows none of it (issue 6, 8)."""
