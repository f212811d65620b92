"""Rows of ATen's operators: which steps of a program each of them becomes."""
