"""Which batteries end first, and the steps that they are counted in."""

from drupelet_tools.telemetry.analysis import weakest


def device(name, left=None, life=None):
    ends = (None, None) if left is None else (left * 1.2, left * 0.8)
    own = {"days": life, "days_low": life * 0.5, "days_high": life * 2} if life else None
    battery = {"days_left": left, "days_left_low": ends[0], "days_left_high": ends[1]}
    return {"label": name, "battery": battery, "life": own}


FLEET = [device("a", left=40, life=15), device("b", life=30), device("c"), device("d", left=700)]


def test_what_was_measured_goes_before_what_is_modelled():
    rows = weakest.weakest(FLEET)
    assert [(row["device"]["label"], row["days"]) for row in rows] == [("b", 30), ("a", 40),
                                                                       ("d", 700)]  # fmt: skip
    assert [row["kind"] for row in rows[:2]] == [weakest.MODELLED, weakest.MEASURED]
    assert all(row["low"] < row["days"] < row["high"] for row in rows)
    assert len(weakest.weakest([device(str(at), life=9) for at in range(40)])) == 10


def test_every_estimate_is_in_one_step():
    rows = weakest.histogram(FLEET)
    counts = {(row["days"], row["kind"]): row["devices"] for row in rows if row["devices"]}
    assert counts == {
        ("20 to 50", weakest.MEASURED): 1, ("10 to 20", weakest.MODELLED): 1,
        ("20 to 50", weakest.MODELLED): 1, ("500 to 1,000", weakest.MEASURED): 1,
    }  # fmt: skip
    assert list(dict.fromkeys(row["days"] for row in rows)) == [
        "10 to 20", "20 to 50", "50 to 100", "100 to 200", "200 to 500", "500 to 1,000",
    ]  # fmt: skip
    assert weakest.histogram([]) == []


def test_steps_at_their_edges():
    edges = [device("x", life=days) for days in (0.5, 1, 5_000, 9_000)]
    rows = weakest.histogram(edges)
    used = [(row["days"], row["devices"]) for row in rows if row["devices"]]
    assert used == [("under 1", 1), ("1 to 2", 1), ("5,000 and more", 2)]
