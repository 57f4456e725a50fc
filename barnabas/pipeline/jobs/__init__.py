"""The jobs of `barnabas pipeline`, one file each: functions over a Spark session.

A frozen dataclass describes a job; its function runs it and returns an account.
"""
