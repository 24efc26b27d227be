//! Our side as a client, against servers of ours and of others.

mod conformance;
mod foreign;
mod kill;
mod oauth;
mod plans;
mod terminal;
