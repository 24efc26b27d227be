//! The sample agents that come with Shikiri.

mod long_running;

use std::sync::Arc;

pub use long_running::LongRunningAgent;

use crate::run::Agent;

/// The agents of a plain server.
pub fn samples() -> Vec<Arc<dyn Agent>> {
    vec![Arc::new(LongRunningAgent)]
}
