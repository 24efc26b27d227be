//! The program: command line, configuration, wiring and the server process. A library as well, so
//! that tests can start servers with agents of their own.

pub mod cli;
pub mod client;
pub mod config;
mod config_browser;
mod config_engines;
pub mod config_lanes;
mod config_layers;
mod config_project;
mod config_team;
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
