"""What people look at: reads the event log and the run folder, nothing else."""
