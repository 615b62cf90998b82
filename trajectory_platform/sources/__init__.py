"""Raw artifacts by UTC day: a local folder or an s3:// prefix in the raw-day layout (design 5)."""
