"""The commands of docs/plugins.md as a user types them: with the framework's correction, with ours of the same settings, with none."""
