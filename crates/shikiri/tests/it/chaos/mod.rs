//! Stories in which things are killed, paused and cut off.

mod child;
