//! The hook as a program of its own: what `shikiri hook` does, in a file that starts faster.
//!
//! It is entered by C's `main`. Rust's own start-up looks for the limits of the stack by reading
//! `/proc/self/maps` line by line, which costs a hook about a thirtieth of its whole time, for a
//! message about stack overflow that a process of one millisecond does not need.

#![no_main]

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What the C library calls. The words come with the call: `std::env` learns of them without Rust's
/// start-up only where the library is GNU's.
#[expect(unsafe_code, reason = "an entry point needs its name, and Rust's start-up is ours to do")]
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, words: *const *const c_char) -> c_int {
    // SAFETY: no other thread exists yet. A reader that left is an error to handle, not a death.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    if count == 3 {
        // SAFETY: the C library gives as many words as it counts, each with its end, for as long as
        // the process lives.
        let [word, database] = [1, 2].map(|at| unsafe { CStr::from_ptr(*words.add(at)) });
        if word.to_bytes() == shikiri_hook::TIDY.as_bytes() {
            let database = Path::new(OsStr::from_bytes(database.to_bytes()));
            shikiri_hook::tidy_and_exit(database)
        }
    }
    shikiri_hook::answer_and_exit()
}
