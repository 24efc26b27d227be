//! The program: command line, configuration, wiring and the server process.
//!
//! `main.rs` answers a hook before anything else is started; every other command goes through [`cli`],
//! one file per command. [`config`] reads flags, variables and files from one table of settings. A
//! project's own files count only after [`trust`]. [`wiring`] alone says which store, agents and engines
//! serve. [`serve`] is the server: REST, MCP, the worker of runs and the coordinator of teams in one
//! process.
//!
//! Most commands work on the store itself and need no server; `client` is for those that ask one.
//! [`demo`] and `doctor` use the same parts as everything else. `player` plays an agent of a team, for
//! models of the offline engine.
//!
//! It is also a library, so that tests and the benchmark can start servers with their own agents.

pub mod cli;
pub mod client;
pub mod config;
pub mod data_folder;
pub mod demo;
pub mod doctor;
pub mod env_vars;
pub mod exit;
pub mod file_schemas;
pub mod follow;
mod hook_files;
mod lane_files;
pub mod logging;
mod near_name;
pub mod output;
mod owner_file;
pub mod player;
pub mod serve;
mod short_ids;
pub mod signals;
mod spinner;
pub mod store_url;
pub mod table;
pub mod terminal;
pub mod text;
pub mod times;
pub mod trust;
pub mod trust_audit;
pub mod wiring;
