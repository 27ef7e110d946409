"""The commands of docs/plugins.md as a user types them, each run three times: the framework's correction, ours of the same settings, none."""
