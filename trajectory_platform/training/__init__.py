"""Training stages: recipe, tokenizer, model, rows with masks, the TRL run in its own process, checkpoints.

Nothing here imports torch, transformers, trl or mlflow before a function that needs it is called.
"""
