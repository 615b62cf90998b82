"""Raw artifacts to canonical trajectories: containers, readers of raw shapes, evidence, the day inventory."""
