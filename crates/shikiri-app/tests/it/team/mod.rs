//! Teams: sessions, delegations, dialogues, and what the time decides.

mod budget;
mod coordinator;
mod delegations;
mod ends;
mod inbox;
mod limits;
mod message_limits;
mod passkeys;
mod races;
mod shiritori;
mod world;
