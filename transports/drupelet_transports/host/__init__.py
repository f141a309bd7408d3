# host only
"""Carriers of hosts, over pyserial and paho-mqtt."""
