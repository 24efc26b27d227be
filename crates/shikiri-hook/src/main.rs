//! The hook as a program of its own: what `shikiri hook` does, in a file that starts faster.

fn main() {
    shikiri_hook::answer_and_exit();
}
