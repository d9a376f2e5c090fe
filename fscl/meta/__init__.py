"""Meta-training: shaping a Network on base classes so that it learns new ones from a few examples."""
