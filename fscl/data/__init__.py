"""Images grouped by class, and the streams of tasks drawn from them."""
