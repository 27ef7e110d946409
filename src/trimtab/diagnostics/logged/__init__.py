"""The scalars frameworks log, under their names: for dashboards that should not notice who computes them."""

from trimtab.diagnostics.logged.names import logged

__all__ = ["logged"]
