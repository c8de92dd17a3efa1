"""What is known of the models of a site: figures, figures over time, workers, and what retentions have deleted."""
