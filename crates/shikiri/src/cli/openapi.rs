//! `shikiri openapi`.

use crate::exit::Failure;
use crate::output::Output;

pub(super) fn run() -> Result<(), Failure> {
    Output::stdout().line(shikiri_web::openapi_json().trim_end())
}
