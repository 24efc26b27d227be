//! The hook as a program of its own. It does the same as `shikiri hook` and starts faster.
//!
//! The entry point is C's `main`. Rust's own start-up reads `/proc/self/maps` to find the limits of
//! the stack. That takes about a thirtieth of a hook's time, for a message about stack overflow
//! that a process of one millisecond does not need.

#![no_main]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Called by the C library. The arguments are parameters, because without Rust's start-up
/// `std::env` has them only with the GNU library.
#[expect(unsafe_code, reason = "an entry point needs its name, and Rust's start-up is ours to do")]
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: no other thread exists yet. With SIGPIPE ignored, a closed pipe is an error instead
    // of a signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    if count == 3 {
        // SAFETY: the C library passes `count` strings that end with NUL and live as long as the
        // process.
        let [word, database] = [1, 2].map(|at| unsafe { CStr::from_ptr(*words.add(at)) });
        if word.to_bytes() == shikiri_hook::TIDY.as_bytes() {
            let database = Path::new(OsStr::from_bytes(database.to_bytes()));
            shikiri_hook::truncate_wal_and_exit(database)
        }
    }
    shikiri_hook::answer_and_exit()
}
