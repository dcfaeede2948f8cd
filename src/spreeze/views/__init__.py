"""Everything people look at: terminal, dashboard, viewer, video, TensorBoard, Weights & Biases, plots."""
