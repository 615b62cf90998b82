"""Creates the buckets named as arguments where they are missing. Endpoint and credentials come from ``AWS_*``."""

from __future__ import annotations

import os
import sys

import boto3
from botocore.exceptions import ClientError


def main(names: list[str]) -> int:
    """Create each bucket; one that exists already is left as it is."""
    client = boto3.client("s3")
    region = os.environ.get("AWS_REGION", "us-east-1")
    place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    for name in names:
        try:
            client.create_bucket(Bucket=name, **place)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise
        print(f"bucket {name} is there")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
