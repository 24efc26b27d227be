//! `shikiri demo`.

use std::path::PathBuf;

use clap::Args;

use crate::demo;
use crate::exit::Failure;

#[derive(Args)]
pub(super) struct Arguments {
    /// End after the story instead of staying up
    #[arg(long)]
    once: bool,
    /// Play in this folder and keep it, instead of in a temporary one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

pub(super) async fn run(arguments: &Arguments) -> Result<(), Failure> {
    demo::run(arguments.root.as_deref(), arguments.once).await
}
