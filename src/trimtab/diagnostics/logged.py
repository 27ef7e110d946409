"""The former name of `trimtab.logged`."""

from trimtab.logged import logged as logged
