//! What anybody on this machine can see of its processes.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::canaries::{Canaries, head, holds};

/// Looks at every command line of this machine, again and again, until it is asked.
pub(super) struct Processes {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Option<String>, bool)>>,
    /// Shows that the search finds what is there.
    decoy: Child,
}

impl Processes {
    pub(super) fn watch(canaries: &Canaries) -> Self {
        let mut decoy = Command::new("sh");
        decoy.args(["-c", "read line", &canaries.plain]).stdin(Stdio::piped());
        let decoy = decoy.spawn().unwrap();
        let enough = Arc::new(AtomicBool::new(false));
        let (canaries, asked) = (canaries.clone(), Arc::clone(&enough));
        let thread = std::thread::spawn(move || {
            let (mut leak, mut saw_plain) = (None, false);
            while !asked.load(Ordering::Relaxed) {
                for line in command_lines() {
                    saw_plain |= holds(&line, &canaries.plain);
                    if canaries.secrets().iter().any(|secret| holds(&line, head(secret))) {
                        leak = Some(String::from_utf8_lossy(&line).replace('\0', " "));
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            (leak, saw_plain)
        });
        Self { enough, thread: Some(thread), decoy }
    }

    pub(super) fn found_nothing(mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let (leak, saw_plain) = self.thread.take().unwrap().join().unwrap();
        assert_eq!(leak, None, "a secret stands on a command line");
        assert!(saw_plain, "the search would not find what is there");
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let _ = self.decoy.kill();
        let _ = self.decoy.wait();
    }
}

fn command_lines() -> Vec<Vec<u8>> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok()).collect()
}
