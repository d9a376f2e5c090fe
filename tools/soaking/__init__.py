"""What `make soak` is made of: ways to break a process, things to be broken, and the table of what was found."""
