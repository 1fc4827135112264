"""What comes before or in place of a kernel, whatever it computes: calls that torch refuses are refused in its words,
operands are brought to one device, and calls that a kernel was not written for are changed or run on the client."""
