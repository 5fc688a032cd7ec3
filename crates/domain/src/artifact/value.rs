//! Value references: `$name`, `$alias.host`, `$alias.group.name`, `$scheme://path` inside texts.
