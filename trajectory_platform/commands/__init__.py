"""The commands, one module per subject; each command is a few lines over the packages below."""
