"""Backends: each runs the same tree of gears, one batch step at a time."""
