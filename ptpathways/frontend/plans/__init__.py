"""What a recorded step did with its values, as one program of the cluster. Pure."""
