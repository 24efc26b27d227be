//! Teams: sessions, delegations, dialogues, and what the time decides.

mod coordinator;
mod limits;
mod races;
mod shiritori;
mod world;
