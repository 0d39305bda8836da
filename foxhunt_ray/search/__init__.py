"""Many trials: the only place that knows Ray Tune and Optuna."""
