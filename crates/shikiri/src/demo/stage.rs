//! How the demo is shown: headings, proofs, pauses for a reader, and the figures for its end.

use std::time::Duration;

use crate::exit::{Exit, Failure};
use crate::output::{Output, Style};

/// After something that has to be read.
const READING: Duration = Duration::from_millis(3_500);
/// The columns that the names of the closing figures take.
const NAMES: usize = 16;

#[derive(Clone, Copy)]
pub(super) struct Stage {
    output: Output,
    is_paced: bool,
}

/// What the demo has shown, for its last lines. Each part adds what it measured.
#[derive(Default)]
pub(super) struct Scoreboard {
    pub(super) kills: usize,
    pub(super) events: usize,
    pub(super) steps: usize,
    pub(super) tokens: u64,
    pub(super) messages: u64,
}

impl Stage {
    pub(super) fn new(is_paced: bool) -> Self {
        Self { output: Output::stdout(), is_paced }
    }

    pub(super) fn output(self) -> Output {
        self.output
    }

    /// The heading of the next part, and time to read it.
    pub(super) async fn act(self, text: &str) -> Result<(), Failure> {
        self.output.line(&format!("\n{}", self.output.paint(Style::Bold, text)))?;
        self.pause().await;
        Ok(())
    }

    pub(super) fn line(self, text: &str) -> Result<(), Failure> {
        self.output.line(&format!("   {text}"))
    }

    /// Announces that a server is about to be killed.
    pub(super) async fn announce_kill(self, pid: u32, when: &str) -> Result<(), Failure> {
        let text = format!("kill -9 {pid}: the server dies {when}");
        self.output.line(&format!("\n   {}", self.output.paint(Style::Bad, &text)))?;
        self.pause().await;
        Ok(())
    }

    /// A promise that was kept; else the demo ends.
    pub(super) fn prove(self, holds: bool, text: &str) -> Result<(), Failure> {
        let (style, mark) = if holds { (Style::Good, "ok") } else { (Style::Bad, "NO") };
        self.line(&format!("{}  {text}", self.output.paint(style, mark)))?;
        if holds { Ok(()) } else { Err(went_wrong("a promise was not kept, see above")) }
    }

    pub(super) async fn pause(self) {
        if self.is_paced {
            tokio::time::sleep(READING).await;
        }
    }

    pub(super) fn scoreboard(self, score: &Scoreboard) -> Result<(), Failure> {
        let Scoreboard { kills, events, steps, tokens, messages } = score;
        self.output.line(&format!("\n{}", self.output.paint(Style::Bold, "In the end")))?;
        for (name, text) in [
            ("servers killed", format!("{kills}, each in the middle of its work")),
            ("events", format!("{events} read live: none lost, repeated or changed")),
            ("steps", format!("{steps} committed, none run again after its commit")),
            ("bill", format!("{tokens} input tokens, exact, the killed turn included")),
            ("agents", format!("{messages} messages, in turn; the server ended the talk")),
        ] {
            self.line(&format!(
                "{}{text}",
                self.output.paint(Style::Dim, &format!("{name:NAMES$}"))
            ))?;
        }
        Ok(())
    }
}

pub(super) fn went_wrong(why: &str) -> Failure {
    Failure::new(Exit::Failed, format!("the demo went wrong ({why})"), "please report it")
}
