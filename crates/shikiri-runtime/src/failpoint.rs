//! Named places where a debug build can be killed, to prove that recovery works from each.
//!
//! `SHIKIRI_FAILPOINT=name:3` ends the process with SIGKILL the third time it passes `name`; the
//! point names are the ones given to `hit` in the code. Release builds ignore it.

#[cfg(debug_assertions)]
pub fn hit(name: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static HITS: AtomicU64 = AtomicU64::new(0);

    let Ok(armed) = std::env::var("SHIKIRI_FAILPOINT") else { return };
    let Some((point, nth)) = armed.rsplit_once(':') else { return };
    if point == name && nth.parse() == Ok(HITS.fetch_add(1, Ordering::SeqCst) + 1) {
        // A real SIGKILL: no destructor, flush or exit handler runs.
        let pid = rustix::process::getpid();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
}

#[cfg(not(debug_assertions))]
pub fn hit(_name: &str) {}
