//! Our side as a client, against servers of ours and of others.

mod chaos;
mod commands;
mod conformance;
mod foreign;
mod lies;
mod oauth;
mod patience;
mod plans;
mod raw;
mod stranger;
mod terminal;
mod tool_pins;
