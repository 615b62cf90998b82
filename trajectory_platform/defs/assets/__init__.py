"""The assets, one module per side of the house; every one of them is a row of a table built by ``day_asset``."""
