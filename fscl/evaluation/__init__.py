"""How well a learner did: accuracy matrices, and metrics that are pure functions of them."""
