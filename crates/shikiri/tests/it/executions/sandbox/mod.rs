//! What a turn of Claude Code can do to the machine that it runs on: each attack is made by a script
//! in its place that runs what it is told in bash.

mod cgroups;
mod files;
mod levels;
mod network;
mod processes;
mod real_cli;
mod usual_work;
mod world;

use world::{ServerUser, World};
