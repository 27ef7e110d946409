"""Our values in a framework's keys: settings are proposed or searched for, read back, and kept only where they mean the same."""
