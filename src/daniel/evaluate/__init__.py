"""Measures of an embedding, and the rivals it is measured against."""
