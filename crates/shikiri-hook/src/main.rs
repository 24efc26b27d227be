//! The hook as a program of its own: what `shikiri hook` does, in a file that starts faster.
//!
//! It is entered by C's `main`. Rust's own start-up looks for the limits of the stack by reading
//! `/proc/self/maps` line by line, which costs a hook about a thirtieth of its whole time, for a
//! message about stack overflow that a process of one millisecond does not need.

#![no_main]

use std::ffi::c_int;
use std::path::Path;

/// What the C library calls. The arguments are taken from `std::env`, which has its own way to them.
#[expect(unsafe_code, reason = "an entry point needs its name, and Rust's start-up is ours to do")]
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    // SAFETY: no other thread exists yet. A reader that left is an error to handle, not a death.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let mut words = std::env::args_os().skip(1);
    match (words.next(), words.next()) {
        (Some(word), Some(database)) if word == shikiri_hook::TIDY => {
            shikiri_hook::tidy_and_exit(Path::new(&database))
        }
        _ => shikiri_hook::answer_and_exit(),
    }
}
