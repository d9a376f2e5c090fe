"""What stands behind `fscl.ContinualClassifier`: pictures in, teaching, judging, and the folder that a model is."""
