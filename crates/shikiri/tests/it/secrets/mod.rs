//! Secrets at rest and on the way, and what strangers must not learn or make us believe.

mod at_rest;
mod errors;
mod masked;
mod on_the_way;
mod private_addresses;
