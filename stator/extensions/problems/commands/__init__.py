"""The subcommands that show problems."""
