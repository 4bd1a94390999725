"""Memory designs to compare with, each one file under the one protocol."""
