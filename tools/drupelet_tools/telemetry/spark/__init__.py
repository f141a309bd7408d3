"""What needs a Spark session: its start, the data source, SQL. Nothing else imports Spark."""
