//! `--watch`: shows the status again after each change.

use std::io::IsTerminal as _;
use std::time::Duration;

use console::Term;
use serde_json::Value;
use shikiri_app::App;
use shikiri_model::record::Document as _;
use shikiri_model::run::Run;
use shikiri_store::{HubSubscription, HubTopic};
use tokio::time::Instant;

use super::json::StatusJson;
use super::{CommonArguments, Snapshot, open_if_there, terminal_width, text};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::signals::Signals;

/// Two looks at the store are at least this far apart.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// Not everything wakes: ages grow, a lease runs out, another node of PostgreSQL works.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(
    config: &Config,
    mut app: Option<App>,
    common: &CommonArguments,
) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let mut display = Display::new(common.json.json)?;
    let mut wakes = app.as_ref().map(subscribe);
    loop {
        let looked = Instant::now();
        if app.is_none() {
            app = open_if_there(config).await?;
            wakes = app.as_ref().map(subscribe);
        }
        let snapshot = Snapshot::take(app.as_ref(), config, &common.tenant.id).await?;
        display.show(&snapshot)?;
        tokio::select! {
            () = next_look(looked, wakes.as_mut()) => {}
            _ = signals.next() => return display.end(),
        }
    }
}

/// Every write of another process wakes the subscribers of due records.
fn subscribe(app: &App) -> HubSubscription {
    app.runtime.store().hub().subscribe(HubTopic::Due(Run::KIND))
}

async fn next_look(looked: Instant, wakes: Option<&mut HubSubscription>) {
    let news = async {
        match wakes {
            Some(wakes) => drop(wakes.next().await),
            None => std::future::pending().await,
        }
    };
    let _ = tokio::time::timeout_at(looked + LONGEST_PAUSE, news).await;
    tokio::time::sleep_until(looked + SHORTEST_PAUSE).await;
}

/// Where the status is shown: on a screen that is redrawn, or as one block or line a change.
enum Display {
    Screen { drawn: Vec<String>, screen: AlternateScreen },
    Blocks { shown: Value },
    JsonLines { shown: Value },
}

impl Display {
    fn new(is_json: bool) -> Result<Self, Failure> {
        if is_json {
            return Ok(Self::JsonLines { shown: Value::Null });
        }
        if !std::io::stdout().is_terminal() {
            return Ok(Self::Blocks { shown: Value::Null });
        }
        Ok(Self::Screen { drawn: Vec::new(), screen: AlternateScreen::enter()? })
    }

    fn show(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let output = Output::stdout();
        match self {
            Self::Screen { drawn, .. } => {
                let page = text::lines(snapshot, terminal_width(), output);
                if page != *drawn {
                    output.piece(&redraw(&page, usize::from(Term::stdout().size().0)))?;
                    *drawn = page;
                }
                Ok(())
            }
            Self::Blocks { shown } => {
                if !is_news(snapshot, shown)? {
                    return Ok(());
                }
                let page = text::lines(snapshot, terminal_width(), output);
                page.iter().try_for_each(|line| output.line(line))?;
                output.line("")
            }
            Self::JsonLines { shown } => match is_news(snapshot, shown)? {
                true => output.json_line(&StatusJson::of(snapshot)),
                false => Ok(()),
            },
        }
    }

    /// Leaves the last state where the command was typed.
    fn end(self) -> Result<(), Failure> {
        let output = Output::stdout();
        match self {
            Self::Screen { drawn, screen } => {
                drop(screen);
                drawn.iter().try_for_each(|line| output.line(line))
            }
            Self::Blocks { .. } | Self::JsonLines { .. } => Ok(()),
        }
    }
}

/// The terminal's other screen. What was on the first one comes back at the end, after an error too.
struct AlternateScreen;

impl AlternateScreen {
    fn enter() -> Result<Self, Failure> {
        Output::stdout().piece("\u{1b}[?1049h\u{1b}[?25l")?;
        Ok(Self)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to bring back.
        let _ = Output::stdout().piece("\u{1b}[?25h\u{1b}[?1049l");
    }
}

/// The page from the top of the screen on, as far as it fits.
fn redraw(page: &[String], height: usize) -> String {
    let room = height.saturating_sub(1).max(1);
    let mut frame = "\u{1b}[H".to_owned();
    for line in page.iter().take(room) {
        frame.push_str(line);
        frame.push_str("\u{1b}[K\r\n");
    }
    if page.len() > room {
        frame.push_str(&format!("… {} more lines", page.len() - room));
    }
    frame.push_str("\u{1b}[J");
    frame
}

/// Whether something changed other than the time.
fn is_news(snapshot: &Snapshot, shown: &mut Value) -> Result<bool, Failure> {
    let status = serde_json::to_value(StatusJson::of(snapshot));
    let mut status = status.map_err(|error| Failure::told(Exit::Failed, error))?;
    status["at"] = Value::Null;
    for subagent in status["subagents"].as_array_mut().into_iter().flatten() {
        subagent["duration_ms"] = Value::Null;
    }
    let is_news = status != *shown;
    *shown = status;
    Ok(is_news)
}
