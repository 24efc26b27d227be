//! `shikiri doctor`.

use clap::Args;

use super::JsonArgument;
use crate::config::Config;
use crate::doctor::{Finding, Verdict, examine};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};
use crate::text::one_line;

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) async fn run(config: &Config, arguments: &Arguments) -> Result<(), Failure> {
    let findings = examine(config).await;
    let output = Output::stdout();
    if arguments.json.json {
        output.json(&findings)?;
    } else {
        findings.iter().try_for_each(|finding| output.line(&line(output, finding)))?;
    }
    match findings.iter().filter(|finding| finding.verdict == Verdict::Fail).count() {
        0 => Ok(()),
        count => {
            let what = format!("{count} of {} checks failed", findings.len());
            Err(Failure::new(Exit::Failed, what, "see the lines marked fail"))
        }
    }
}

fn line(output: Output, finding: &Finding) -> String {
    let (style, word) = match finding.verdict {
        Verdict::Ok => (Style::Good, "ok  "),
        Verdict::Info => (Style::Dim, "info"),
        Verdict::Warn => (Style::Warning, "warn"),
        Verdict::Fail => (Style::Bad, "fail"),
    };
    format!("{}  {:13}  {}", output.paint(style, word), finding.check, one_line(&finding.text))
}
