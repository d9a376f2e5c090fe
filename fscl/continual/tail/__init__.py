"""Two-step consolidation on the tail of a network: the first stages stand still and run once a picture, the rest learns."""
