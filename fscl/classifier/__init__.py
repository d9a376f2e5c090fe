"""What stands behind `fscl.ContinualClassifier`: inputs, teaching, calibration, answers, and the folder that a model is."""
