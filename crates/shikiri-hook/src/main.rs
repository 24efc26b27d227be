//! The hook as a program of its own: what `shikiri hook` does, in a file that starts faster.

use std::path::Path;

fn main() {
    let mut words = std::env::args_os().skip(1);
    match (words.next(), words.next()) {
        (Some(word), Some(database)) if word == shikiri_hook::TIDY => {
            shikiri_hook::tidy_and_exit(Path::new(&database))
        }
        _ => shikiri_hook::answer_and_exit(),
    }
}
