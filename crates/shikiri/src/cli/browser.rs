//! `shikiri browser`: logs a person in, and checks whether the providers' pages match their
//! descriptions.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use shikiri_browser::{LoginPage, PageCheck, PageCheckState};

use super::{Global, JsonArgument, TenantArgument};
use crate::config::{BrowserFlags, Config, Surroundings};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Style, note};
use crate::signals::Signals;
use crate::spinner::show_waiting;
use crate::text::one_line;
use crate::trust::ConfigUse;
use crate::{data_folder, logging, trust_audit, wiring};

/// Pause between two checks whether the login is done.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub(super) enum Command {
    /// Open the providers' pages in a window, so that a person can log in; ends when they are closed
    Login(Arguments),
    /// Try the providers' pages and tell what is found there; nothing is asked
    Check(Arguments),
}

#[derive(Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    browser: BrowserFlags,
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

pub(super) async fn run(global: &Global, command: Command) -> Result<(), Failure> {
    let arguments = match &command {
        Command::Login(arguments) | Command::Check(arguments) => arguments,
    };
    let flags = arguments.browser.settings.clone().or(global.settings());
    let uses = &[ConfigUse::Browser];
    let config = Config::load_for(uses, flags, &Surroundings::of_process())?;
    logging::start(&config, "warn")?;
    data_folder::prepare(&config.data_folder())?;
    trust_audit::record(&config, config.trust.take_acts()).await;
    match command {
        Command::Login(arguments) => login(&config, &arguments).await,
        Command::Check(arguments) => check(&config, &arguments).await,
    }
}

async fn check(config: &Config, arguments: &Arguments) -> Result<(), Failure> {
    let bridge = wiring::bridge(config);
    let found = show_waiting("looking at the pages", bridge.check(&arguments.tenant.id)).await?;
    let output = Output::stdout();
    if arguments.json.json {
        #[derive(Serialize)]
        struct Found {
            items: Vec<PageCheck>,
        }
        output.json(&Found { items: found.clone() })?;
    } else {
        found.iter().try_for_each(|checked| show(output, checked))?;
    }
    let wrong: Vec<&str> = found
        .iter()
        .filter(|checked| {
            !matches!(checked.state, PageCheckState::Ready | PageCheckState::Disabled)
        })
        .map(|checked| checked.name.as_str())
        .collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            let what = format!("not ready: {}", wrong.join(", "));
            Err(Failure::new(Exit::Failed, what, "see the lines above"))
        }
    }
}

fn show(output: Output, checked: &PageCheck) -> Result<(), Failure> {
    let (style, word) = match checked.state {
        PageCheckState::Ready => (Style::Good, "ready"),
        PageCheckState::LoginRequired => (Style::Warning, "login required"),
        PageCheckState::PageChanged => (Style::Bad, "page changed"),
        PageCheckState::Unreachable => (Style::Bad, "unreachable"),
        PageCheckState::Disabled => (Style::Dim, "disabled"),
    };
    let name = output.paint(Style::Bold, &one_line(&checked.name));
    let text = one_line(&checked.text);
    output.line(&format!("{name}: {}: {text}", output.paint(style, word)))?;
    if let Some(url) = &checked.url {
        output.line(&format!("  at {}", one_line(url)))?;
    }
    for (field, matches) in &checked.selectors {
        for found in matches.iter().filter(|found| found.found > 0) {
            let selector = one_line(&found.selector);
            output.line(&format!("  {field}: {selector} ({} visible)", found.visible))?;
        }
    }
    Ok(())
}

async fn login(config: &Config, arguments: &Arguments) -> Result<(), Failure> {
    if config.browser.url.is_none() && !config.browser.has_display {
        return Err(Failure::new(
            Exit::Unavailable,
            "there is no display on which a person could log in",
            "do it in a desktop session, or name a Chrome there with --browser-url",
        ));
    }
    let mut signals = Signals::catch()?;
    let mut config = config.clone();
    config.browser.is_headless = false;
    let bridge = wiring::bridge(&config);
    let pages =
        show_waiting("opening the window", bridge.open_for_login(&arguments.tenant.id)).await?;
    note("log in to each page in the window; when done, close the pages or press Ctrl-C");
    let mut known = vec![None; pages.len()];
    loop {
        look(&pages, &mut known).await;
        tokio::select! {
            _ = signals.next() => break,
            () = tokio::time::sleep(LOOK) => {}
        }
        if pages.iter().all(|page| !page.is_open()) {
            break;
        }
    }
    tell(&pages, &known, arguments.json.json)
}

/// Reports changes. The last known state of a closed page counts.
async fn look(pages: &[LoginPage], known: &mut [Option<bool>]) {
    for (page, known) in pages.iter().zip(known) {
        let now = page.is_logged_in().await;
        if now.is_some() && now != *known {
            *known = now;
            let state = if now == Some(true) { "logged in" } else { "waits for a login" };
            note(&format!("{}: {state}", one_line(page.name())));
        }
    }
}

fn tell(pages: &[LoginPage], known: &[Option<bool>], is_json: bool) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        name: &'a str,
        logged_in: bool,
    }
    let lines: Vec<Line<'_>> = pages
        .iter()
        .zip(known)
        .map(|(page, known)| Line { name: page.name(), logged_in: *known == Some(true) })
        .collect();
    if is_json {
        Output::stdout().json(&serde_json::json!({ "items": lines }))?;
    }
    let missing: Vec<&str> =
        lines.iter().filter(|line| !line.logged_in).map(|line| line.name).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => {
            let what = format!("there is no login at {}", missing.join(", "));
            Err(Failure::new(Exit::Failed, what, "run `shikiri browser login` again"))
        }
    }
}
