"""What `barnabas pipeline` does, one file for each job: functions over a session of Spark.

A job says what is to be done (a frozen dataclass), does it, and gives an account of it.
"""
