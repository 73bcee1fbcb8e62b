"""Daniel and its peers, one file each: ``run(problem, rng, **options) -> Result``."""
