"""Reads an Iceberg table with Spark and Iceberg's own runtime, and prints what it found as one JSON document.

It runs in an environment of its own, which has PySpark and nothing of Barnabas. Arguments: the directory with Iceberg's
jars, the SQLite file of the catalogue, its name, the warehouse, and then one SQL statement each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(jars: str, database: str, catalogue: str, warehouse: str, statements: list[str]) -> None:
    settings = {
        "spark.jars": ",".join(str(path) for path in sorted(Path(jars).glob("*.jar"))),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{catalogue}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{catalogue}.type": "jdbc",
        f"spark.sql.catalog.{catalogue}.uri": f"jdbc:sqlite:{database}",
        f"spark.sql.catalog.{catalogue}.warehouse": warehouse,
    }
    builder = SparkSession.builder.master("local[2]").appName("read-iceberg")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    answers = [[row.asDict(recursive=True) for row in spark.sql(each).collect()] for each in statements]
    print(json.dumps({"spark": spark.version, "answers": answers}, default=str))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
