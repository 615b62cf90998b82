"""The shopping environment: products, search, tools and problems; serves judging, evaluation, training, arena."""
