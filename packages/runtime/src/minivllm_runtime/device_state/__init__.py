"""What requests keep on the device from step to step, and how numbers get there and back."""
