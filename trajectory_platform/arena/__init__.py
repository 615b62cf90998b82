"""The simulated arena: scripted miners act in the sandbox and leave days in the published layout."""
