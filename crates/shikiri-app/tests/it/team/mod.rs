//! Teams: sessions, delegations, dialogues, and what the time decides.

mod budget;
mod coordinator;
mod inbox;
mod limits;
mod races;
mod shiritori;
mod world;
