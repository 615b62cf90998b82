"""The two verdict axes of a trace: its outcome (rule score) and its reasoning (validators, rules)."""
