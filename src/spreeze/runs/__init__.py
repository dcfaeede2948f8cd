"""A run on disk: folder, lock, journals, checkpoint format, replay log, results, learning curves."""
