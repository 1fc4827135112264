"""What users are told: recompiles, long waits, operands that lie elsewhere, two threads on one device."""
