"""The learner process: intake, replay, updates, exchange between two devices, publishing, checkpoints."""
