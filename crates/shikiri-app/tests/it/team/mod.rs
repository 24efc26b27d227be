//! Teams: sessions, delegations, dialogues, and what the time decides.

mod limits;
mod shiritori;
mod world;
