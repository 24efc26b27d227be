//! The engines as their callers meet them.

mod claude_code;
