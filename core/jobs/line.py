"""The runs that wait for the device, in order; those submitted together wait, and begin, as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.jobs.job import Job


class Line:
    """Groups of waiting jobs. Not thread-safe: its owner's lock guards it."""

    def __init__(self) -> None:
        self._groups: list[list[Job]] = []

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Job]:
        return (job for group in self._groups for job in group)

    def append(self, group: Sequence[Job]) -> None:
        """Let these wait behind all others."""
        self._groups.append(list(group))

    def position(self, job: Job) -> int:
        """The job's group is the n-th in line; 0 when it doesn't wait."""
        return next((place for place, group in enumerate(self._groups, 1) if job in group), 0)

    def remove(self, job: Job) -> bool:
        """Take one job out; False when it doesn't wait."""
        for group in self._groups:
            if job in group:
                group.remove(job)
                self._groups = [group for group in self._groups if group]
                return True
        return False

    def first(self) -> list[Job]:
        """Take the first group out, nothing of an empty line."""
        return self._groups.pop(0) if self._groups else []

    def clear(self) -> list[Job]:
        """Take all out."""
        waiting, self._groups = list(self), []
        return waiting
