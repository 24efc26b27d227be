//! `shikiri host` alone: a prompt that calls tools in the foreground or background.

mod catalogue;
mod jobs;
mod words;

use std::sync::Arc;

use catalogue::{Catalogue, details};
use jobs::Jobs;
use serde_json::{Map, Value};
use shikiri_client::ServerTool;
use shikiri_host::{Host, NewToolCall};
use shikiri_model::host::sanitize_line;
use words::{COMMANDS, Wish};

use super::call::{TIME_LIMIT, argument_of};
use super::count;
use super::list::{LIST_HEAD, TOOLS_HEAD, list_row, tool_row};
use crate::config::Config;
use crate::exit::Failure;
use crate::signals::Signals;
use crate::terminal::host::{CommandLine, Screen, Typed, changes_line, columns, has_person, width};

const PROMPT: &str = "shikiri> ";
const HISTORY: &str = "host-history";
const HELP: &str = "\
list                  the servers
tools [SERVER]        the tools, one line each
details TOOL          what a tool does and which arguments it takes
TOOL [NAME=VALUE …]   call it; without arguments you are asked for them
SERVER.TOOL, SERVER TOOL   the same, where several servers have one of that name
… &                   call it in the background
cancel                cancel the last call in the background
resume [CALL]         take up calls that were left
tokens, clean-tokens  what leads back to calls; forget it
quit                  or Ctrl-D; what goes on in the background is left for `resume`
Ctrl-C cancels the call before you, twice leaves it; a line that begins with a space is not kept.";

pub(super) async fn run(host: Host, config: &Config) -> Result<(), Failure> {
    if !has_person() {
        let what = "there is no terminal";
        return Err(Failure::usage(what, "name a command, such as `shikiri host call`"));
    }
    let screen = Screen::new();
    let mut shell = Shell {
        jobs: Jobs::new(&screen),
        host: Arc::new(host),
        screen,
        catalogue: Catalogue::default(),
        history: config.data_folder().join(HISTORY),
    };
    shell.look().await;
    let tools = count(shell.catalogue.tools().len(), "tool");
    let servers = count(shell.host.servers().len(), "server");
    shell.screen.say(&format!("{tools} of {servers}; `help` tells what can be done"));
    let done = shell.serve().await;
    shell.jobs.leave();
    shell.screen.close().await;
    shell.host.close().await;
    done
}

struct Shell {
    host: Arc<Host>,
    screen: Arc<Screen>,
    catalogue: Catalogue,
    jobs: Jobs,
    history: std::path::PathBuf,
}

impl Shell {
    async fn serve(&mut self) -> Result<(), Failure> {
        let mut signals = Signals::catch()?;
        let mut typed = String::new();
        loop {
            let line = CommandLine {
                words: COMMANDS
                    .map(str::to_owned)
                    .into_iter()
                    .chain(self.catalogue.names())
                    .collect(),
                history: Some(self.history.clone()),
                typed: std::mem::take(&mut typed),
            };
            let read = tokio::select! {
                read = self.screen.read_command(PROMPT, line) => read,
                signal = signals.next() => {
                    if signal == 2 {
                        continue;
                    }
                    return Err(Failure::Stopped(signal));
                }
            };
            match read {
                Typed::Line(line) => match words::read(&line) {
                    Ok(Wish::Quit) => return Ok(()),
                    Ok(wish) => self.grant(wish).await?,
                    Err(why) => self.screen.say(&why),
                },
                Typed::Interrupt => {}
                Typed::End => return Ok(()),
                // A question comes first; the typed text is restored afterwards.
                Typed::Broken(so_far) => typed = so_far,
            }
        }
    }

    async fn grant(&mut self, wish: Wish) -> Result<(), Failure> {
        match wish {
            Wish::Nothing | Wish::Quit => {}
            Wish::Help => self.screen.say(HELP),
            Wish::List => {
                let rows = self.look().await;
                self.show(&LIST_HEAD, &rows);
            }
            Wish::Tools(server) => {
                self.look().await;
                let tools = self.catalogue.tools().iter();
                let wanted =
                    tools.filter(|(name, _)| server.as_ref().is_none_or(|server| server == name));
                let rows: Vec<_> = wanted.map(|(server, tool)| tool_row(server, tool)).collect();
                self.show(&TOOLS_HEAD, &rows);
            }
            Wish::Details(words) => match self.catalogue.find(&words) {
                Ok((server, tool, _)) => self.screen.say(&details(server, tool).join("\n")),
                Err(why) => self.screen.say(&why),
            },
            Wish::Resume(id) => self.jobs.resume(&self.host, id).await?,
            Wish::Tokens => self.jobs.tokens(&self.host).await?,
            Wish::CleanTokens => self.jobs.clean(&self.host).await?,
            Wish::Cancel => self.jobs.cancel_last(),
            Wish::Call { words, background } => self.call(&words, background).await?,
        }
        Ok(())
    }

    /// Asks every server for its tools.
    async fn look(&mut self) -> Vec<Vec<String>> {
        let listed = self.host.list().await;
        self.catalogue = Catalogue::of(&listed);
        for one in &listed {
            if !one.changes.is_empty() {
                self.screen.say(&changes_line(&one.server, &one.changes));
            }
            match &one.offer {
                Err(error) => {
                    self.screen.say(&sanitize_line(&format!("shikiri: {}: {error}", one.server)));
                }
                Ok((_, offer)) => offer.remarks.iter().for_each(|remark| {
                    self.screen.say(&sanitize_line(&format!("shikiri: {}: {remark}", one.server)));
                }),
            }
        }
        listed.iter().map(list_row).collect()
    }

    fn show(&self, head: &[&'static str], rows: &[Vec<String>]) {
        self.screen.say(&columns(head, rows, width()).join("\n"));
    }

    async fn call(&mut self, words: &[String], background: bool) -> Result<(), Failure> {
        let (server, tool, given) = match self.catalogue.find(words) {
            Ok(found) => found,
            Err(why) => {
                self.screen.say(&why);
                return Ok(());
            }
        };
        let Some(arguments) = self.arguments(tool, given).await else { return Ok(()) };
        let new = NewToolCall {
            server: server.to_owned(),
            tool: tool.name.clone(),
            arguments,
            time_limit: TIME_LIMIT,
        };
        self.jobs.call(&self.host, new, background).await
    }

    /// The arguments on the line, otherwise the person's answers. None if the call is cancelled.
    async fn arguments(&self, tool: &ServerTool, given: &[String]) -> Option<Map<String, Value>> {
        let known = tool.arguments();
        if given.is_empty() && !known.is_empty() {
            let asked = self.screen.ask_arguments(&known).await;
            if asked.is_none() {
                self.screen.say("not called");
            }
            return asked;
        }
        let mut arguments = Map::new();
        for word in given {
            let Some((name, value)) = argument_of(tool, word) else {
                self.screen.say(&format!("{word:?} is no NAME=VALUE"));
                return None;
            };
            arguments.insert(name, value);
        }
        Some(arguments)
    }
}
