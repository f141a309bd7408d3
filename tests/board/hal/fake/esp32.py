"""Stands in for `esp32`: of the first one, which has another thermometer than its relatives."""


def raw_temperature():
    return 77
