"""From a hospital's tables to records, and back from a site folder."""

from daniel.data.sitefolder import read_site

__all__ = ["read_site"]
