"""What a legal duty cycle leaves for an epoch."""


def duty_airtime_ms(epoch_ms: int, per_mille: int, observed_ms: int) -> int:
    """Return the airtime per epoch that keeps a legal duty cycle in every span of `observed_ms`.

    A span overlaps one epoch more than fit into it. Example: 1 % of an hour (10, 3,600,000), in
    epochs of 15 minutes, gives 36,000 ms / 5 = 7,200 ms.
    """
    assert epoch_ms > 0 and 0 < per_mille <= 1000 and observed_ms > 0
    touched = (observed_ms + epoch_ms - 1) // epoch_ms + 1
    return observed_ms // 1000 * per_mille // touched
