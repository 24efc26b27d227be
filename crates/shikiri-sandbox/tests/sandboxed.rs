//! A program that can be started again as the sandbox's own processes, and as a supervisor that
//! gives a plan and a command to it.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(ended) = shikiri_sandbox::run_if_asked() {
        return ended;
    }
    let mut arguments = std::env::args_os().skip(1);
    let plan = arguments.next().unwrap_or_default();
    let command: Vec<_> = arguments.collect();
    let Ok(plan) = serde_json::from_str(&plan.to_string_lossy()) else { return ExitCode::FAILURE };
    let Ok(mut entered) = shikiri_sandbox::enter(&plan, &command) else {
        return ExitCode::from(126);
    };
    match entered.command.status() {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(255)).unwrap_or(255)),
        _ => ExitCode::from(126),
    }
}
