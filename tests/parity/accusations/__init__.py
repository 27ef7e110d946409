"""What remarks accuse the frameworks of, shown by running their own functions."""
