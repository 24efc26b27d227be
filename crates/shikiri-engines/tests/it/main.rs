//! The engines as their callers meet them.
