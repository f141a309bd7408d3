"""Debian's mosquitto restarted every few seconds: nothing is lost, nothing comes twice."""

from drupelet_tools.sim.broker import soak

SECONDS = 20.0


def test_a_broker_that_is_restarted_all_the_time() -> None:
    figures = soak(SECONDS, seed=7)
    print(figures)
    assert figures.restarts >= 3
    assert figures.connects > 2 + figures.restarts
    assert figures.messages >= 150 and figures.deliveries == 2 * figures.messages
    assert (figures.lost, figures.duplicated) == (0, 0)
