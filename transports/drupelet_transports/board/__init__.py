"""Carriers of boards, in bounded memory."""
