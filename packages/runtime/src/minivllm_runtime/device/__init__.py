"""The operations of a decoder on the device at hand; `choose_ops` picks the implementation."""
