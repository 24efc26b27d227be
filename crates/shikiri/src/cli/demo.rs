//! `shikiri demo`.

use std::path::PathBuf;

use clap::Args;

use crate::demo::{self, DemoOptions};
use crate::exit::Failure;

#[derive(Args)]
pub(super) struct Arguments {
    /// End after the story instead of staying up
    #[arg(long)]
    once: bool,
    /// Without pauses to read in; there are none either if the output is no terminal
    #[arg(long)]
    fast: bool,
    /// Play in this folder and keep it, instead of in a temporary one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { once, fast, root } = arguments;
    demo::run(&DemoOptions { root, once, fast }).await
}
