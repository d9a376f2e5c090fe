"""Ways to lay out a `Table`. None of them knows a measure by name."""
