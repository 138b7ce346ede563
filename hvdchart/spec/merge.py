"""Merges maps as Helm merges values files: maps merge key by key, anything else replaces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, TypeVar

from hvdchart.spec.paths import KeyPath

T = TypeVar("T")


class Merger(ABC, Generic[T]):
    """The merge of values of one type; a subclass says which of them are maps.

    A null replaces like any other value, unless `deletes` says that it removes the key.
    """

    @abstractmethod
    def entries(self, value: T) -> Mapping[str, T] | None:
        """The keys and values of a map; None for anything else."""

    @abstractmethod
    def with_entries(self, base: T, entries: dict[str, T]) -> T:
        """The merged map, of which `base` is the older one."""

    def deletes(self, path: KeyPath, value: T) -> bool:
        """Whether the newer `value` at `path` removes the key."""
        return False

    def merge(self, base: T, newer: T, path: KeyPath = ()) -> T:
        """`newer` merged into `base`; neither is changed."""
        old, new = self.entries(base), self.entries(newer)
        if old is None or new is None:
            return newer
        merged = dict(old)
        for key, value in new.items():
            if self.deletes((*path, key), value):
                merged.pop(key, None)
            elif key in old:
                merged[key] = self.merge(old[key], value, (*path, key))
            else:
                merged[key] = value
        return self.with_entries(base, merged)
