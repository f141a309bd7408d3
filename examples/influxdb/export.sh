#!/bin/sh
# Sends each message of a home once to an InfluxDB, and goes on as they come:
#   ./export.sh HOME http://127.0.0.1:8086 farm
# It may be killed at any moment. For a service, put its last line into ExecStart= of a unit.
set -eu
home=$1 server=$2 database=$3
curl -fsS -o /dev/null --data-urlencode "q=CREATE DATABASE $database" "$server/query"
exec drupelet export "$server/write?db=$database" --home "$home" --follow
