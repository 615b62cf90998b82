-- MLflow keeps its own database beside Dagster's, on the same server.
CREATE DATABASE mlflow OWNER dagster;
