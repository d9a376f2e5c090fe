"""Networks as values: a specification, a dict of weights, and pure functions of both."""
