"""What tests of several folders need."""

import os

import pytest


@pytest.fixture
def disk(monkeypatch):
    """In order: the inodes that were forced to the disk, and the names that changed."""
    seen = []
    fsync, replace = os.fsync, os.replace

    def forced(handle):
        seen.append(os.fstat(handle).st_ino)
        fsync(handle)

    def renamed(source, target):
        seen.append("renamed")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(os, "replace", renamed)
    return seen
