"""What the rest of the front end stands on: the process's runtime, its torch devices, and the user's source lines."""
