"""Where devices are, as far as the fleet file says: those with problems first, in kilometres.

The page asks no network for anything, so nothing but distances lies under the map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from drupelet_tools.telemetry.analysis.attention import ALARM, SEVERITIES, WARNING

Row = dict[str, Any]
Position = tuple[float, float]  # latitude and longitude in degrees, WGS 84

DEVICES_MAX = 500  # on a map
FINE = "no problem"
STATES = (ALARM, WARNING, FINE)
EARTH_RADIUS_KM = 6371.0088  # the mean radius, IUGG 1980
_POINT = 1e-7  # an angle that is none, 0.6 m


def placed(devices: Sequence[Row]) -> list[Row]:
    """The devices whose position is known, worst first: `device` (its figures), `state`,
    `east_km` and `north_km` of the middle of all."""
    known = [row for row in devices if row["position"] is not None]
    if not known:
        return []
    middle = _middle([row["position"] for row in known])
    rows = []
    for device in known:
        east_km, north_km = offset_km(middle, device["position"])
        rows.append(
            {"device": device, "state": state(device), "east_km": east_km, "north_km": north_km}
        )
    rows.sort(key=lambda row: STATES.index(row["state"]))
    return rows


def state(device: Row) -> str:
    """The worst of a device's problems; a notice is none to drive for."""
    severities = device["severities"].values()
    worst = min(severities, key=SEVERITIES.index, default=FINE)
    return worst if worst in (ALARM, WARNING) else FINE


def offset_km(middle: Position, position: Position) -> tuple[float, float]:
    """How far east and north a position lies, in the azimuthal equidistant projection: distance
    and direction from the middle are true (Snyder, USGS Professional Paper 1395, 25)."""
    north, south = math.radians(position[0]), math.radians(middle[0])
    turn = math.radians(position[1] - middle[1])
    cosine = math.sin(south) * math.sin(north) + math.cos(south) * math.cos(north) * math.cos(turn)
    angle = math.acos(max(-1.0, min(1.0, cosine)))
    if math.pi - angle < _POINT:  # opposite the middle, as far in every direction
        return 0.0, math.pi * EARTH_RADIUS_KM
    stretch = EARTH_RADIUS_KM * (angle / math.sin(angle) if angle > _POINT else 1.0)
    east = math.cos(north) * math.sin(turn)
    up = math.cos(south) * math.sin(north) - math.sin(south) * math.cos(north) * math.cos(turn)
    return stretch * east, stretch * up


def _middle(positions: Sequence[Position]) -> Position:
    """The direction of the mean of all, as seen from the middle of the earth."""
    x, y, z = 0.0, 0.0, 0.0
    for latitude, longitude in positions:
        north, east = math.radians(latitude), math.radians(longitude)
        x += math.cos(north) * math.cos(east)
        y += math.cos(north) * math.sin(east)
        z += math.sin(north)
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def compass(east_km: float, north_km: float) -> str:
    """Distance and one of eight directions, like `3.2 km NE`."""
    distance_km = math.hypot(east_km, north_km)
    if distance_km < 0.05:
        return "0.0 km"
    points = ("N", "NE", "E", "SE", "S", "SW", "W", "NW")
    point = points[round(math.degrees(math.atan2(east_km, north_km)) / 45) % 8]
    return f"{distance_km:,.1f} km {point}"
