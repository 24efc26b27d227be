//! The least that a hook could do: read its input, print a line.

use std::io::{Read as _, Write as _};

fn main() -> std::io::Result<()> {
    let mut event = Vec::new();
    std::io::stdin().read_to_end(&mut event)?;
    std::io::stdout().write_all(b"{}\n")
}
