"""The former home of `trimtab.logged`, whose name still leads there."""
