"""A local web application: label texts, explore them on a map, and fix their labels."""
