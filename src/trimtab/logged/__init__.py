"""The scalars frameworks log, under their names: for dashboards that should not notice who computes them."""

from trimtab.logged.table import logged

__all__ = ["logged"]
