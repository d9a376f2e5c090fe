"""Faster ways to the same numbers, each behind one function; the plain way is always there to test against."""
