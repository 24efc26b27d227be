//! The program: command line, configuration, wiring and the server process. It is also a library,
//! so that tests can start servers with their own agents.

pub mod cli;
pub mod client;
pub mod config;
pub mod data_folder;
pub mod demo;
pub mod doctor;
pub mod env_vars;
pub mod exit;
pub mod follow;
mod hook_files;
mod lane_files;
pub mod logging;
pub mod output;
mod owner_file;
pub mod player;
pub mod serve;
pub mod signals;
pub mod store_url;
pub mod terminal;
pub mod text;
pub mod trust;
pub mod trust_audit;
pub mod wiring;
