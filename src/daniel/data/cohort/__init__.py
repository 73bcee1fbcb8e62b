"""Synthetic hospitals with a known truth."""

from daniel.data.cohort.make import Options, make_cohort, plan, read_options

__all__ = ["Options", "make_cohort", "plan", "read_options"]
