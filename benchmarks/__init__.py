"""Measurements of speed and quality; each module is a command, `python -m benchmarks.NAME`."""
