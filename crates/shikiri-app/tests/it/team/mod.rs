//! Teams: sessions, delegations, dialogues, and what the time decides.

mod budget;
mod coordinator;
mod ends;
mod inbox;
mod limits;
mod passkeys;
mod races;
mod shiritori;
mod world;
