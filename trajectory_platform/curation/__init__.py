"""The structural filter: who acted (the axis), what is worth learning from, and what is left out and why."""
