"""Families: each turns a published config into a tree of gears."""
