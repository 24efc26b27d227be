//! The door over a real store: what is asked over HTTP, what is answered.

mod access;
mod bad_input;
mod events;
mod health;
mod limits;
mod openapi;
mod resources;
mod serving;
mod world;
