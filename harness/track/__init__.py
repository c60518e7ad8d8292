"""What runs measure, told to an experiment tracker: TensorBoard, Weights & Biases, MLflow."""
