"""One Spark session for all telemetry tests: it takes ten seconds and more to come up."""

import pytest

from drupelet_tools.telemetry.spark import session


@pytest.fixture(scope="session")
def spark_session():
    running = session.start_early()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def spark(spark_session):
    return spark_session.wait()
