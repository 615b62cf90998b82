"""Leak clusters over every problem seen, pools by keyed hash, and the guard over the training window."""
