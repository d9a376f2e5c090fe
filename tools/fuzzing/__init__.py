"""What `make fuzz` is made of: every parser of bytes that come from outside."""
