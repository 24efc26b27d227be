//! Calls of the prompt: one in the foreground, any number in the background.

use std::sync::Arc;

use shikiri_host::{CallFollowResult, Host, HostError, NewToolCall};
use shikiri_model::host::{HostCall, sanitize_line};
use shikiri_model::ids::HostCallId;
use shikiri_model::record::StoredDocument;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::call::verdict;
use super::super::count;
use super::super::seat::{Attended, attend};
use crate::exit::Failure;
use crate::terminal::host::{Person, Screen, columns, result_lines, width};

pub(super) struct Jobs {
    screen: Arc<Screen>,
    running: Vec<Job>,
}

struct Job {
    name: String,
    person: Arc<Person>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

/// The subject of a job.
enum Call {
    New(NewToolCall),
    Left(HostCallId),
}

impl Jobs {
    pub(super) fn new(screen: &Arc<Screen>) -> Self {
        Self { screen: Arc::clone(screen), running: Vec::new() }
    }

    pub(super) async fn call(
        &mut self,
        host: &Arc<Host>,
        new: NewToolCall,
        background: bool,
    ) -> Result<(), Failure> {
        let name = sanitize_line(&format!("{} {}", new.server, new.tool));
        let job = self.start(host, name, Call::New(new));
        if background {
            self.tidy();
            self.running.push(job);
            return Ok(());
        }
        self.attend(job).await
    }

    fn start(&self, host: &Arc<Host>, name: String, call: Call) -> Job {
        let person = Arc::new(Person::new(&self.screen));
        let cancel = CancellationToken::new();
        let task = {
            let (host, person, cancel) = (Arc::clone(host), Arc::clone(&person), cancel.clone());
            let (screen, name) = (Arc::clone(&self.screen), name.clone());
            tokio::spawn(async move {
                let called = match call {
                    Call::New(new) => host.call_tool(new, person.as_ref(), &cancel).await,
                    Call::Left(id) => host.resume_call(&id, None, person.as_ref(), &cancel).await,
                };
                person.leave();
                report(&screen, &name, called);
            })
        };
        Job { name, person, cancel, task }
    }

    /// Waits for a call in the foreground.
    async fn attend(&mut self, mut job: Job) -> Result<(), Failure> {
        let cancelling = || {
            self.screen.say("cancelling; once more to leave it as it is");
            job.cancel.cancel();
        };
        let attended = attend(&mut job.task, Some(self.screen.interrupts()), cancelling).await?;
        let Attended::Left(signal) = attended else { return Ok(()) };
        job.leave().await;
        self.screen.say("left as it is; `resume` takes it up");
        // Only Ctrl-C stops just the call.
        if signal == 2 { Ok(()) } else { Err(Failure::Stopped(signal)) }
    }

    pub(super) fn cancel_last(&mut self) {
        self.tidy();
        match self.running.iter().rev().find(|job| !job.cancel.is_cancelled()) {
            Some(job) => {
                self.screen.say(&format!("cancelling {}", job.name));
                job.cancel.cancel();
            }
            None => self.screen.say("nothing goes on in the background"),
        }
    }

    /// Interrupted calls, without those that run here.
    async fn left(&mut self, host: &Host) -> Result<Vec<StoredDocument<HostCall>>, Failure> {
        self.tidy();
        let mut open = host.open_calls().await?;
        open.retain(|call| !self.running.iter().any(|job| job.person.watches(&call.value.id)));
        Ok(open)
    }

    pub(super) async fn resume(
        &mut self,
        host: &Arc<Host>,
        id: Option<String>,
    ) -> Result<(), Failure> {
        let mut left = self.left(host).await?;
        if let Some(id) = &id {
            left.retain(|call| call.value.id.as_str() == id);
        }
        if left.is_empty() {
            self.screen.say("nothing was left to take up");
        }
        for call in left {
            let name = sanitize_line(&format!("{} {}", call.value.server, call.value.tool));
            let job = self.start(host, name, Call::Left(call.value.id));
            self.attend(job).await?;
        }
        Ok(())
    }

    pub(super) async fn tokens(&mut self, host: &Host) -> Result<(), Failure> {
        let left = self.left(host).await?;
        let row = |call: &StoredDocument<HostCall>| {
            let progress = call.value.progress.as_ref().map(|it| it.progress.to_string());
            vec![
                call.value.id.to_string(),
                sanitize_line(&call.value.server),
                sanitize_line(&call.value.tool),
                progress.unwrap_or_else(|| "-".to_owned()),
            ]
        };
        let rows: Vec<_> = left.iter().map(row).collect();
        let head = ["call", "server", "tool", "progress"];
        self.screen.say(&columns(&head, &rows, width()).join("\n"));
        Ok(())
    }

    pub(super) async fn clean(&mut self, host: &Host) -> Result<(), Failure> {
        let left = self.left(host).await?;
        let forgotten = host.forget(&left).await?;
        self.screen.say(&format!("{} forgotten", count(forgotten, "call")));
        Ok(())
    }

    /// Leaves all background calls.
    pub(super) fn leave(&mut self) {
        self.tidy();
        if !self.running.is_empty() {
            let calls = count(self.running.len(), "call");
            self.screen.say(&format!("{calls} left; `shikiri host resume` takes them up"));
        }
        for job in self.running.drain(..) {
            job.task.abort();
            job.person.leave();
        }
    }

    fn tidy(&mut self) {
        self.running.retain(|job| !job.task.is_finished());
    }
}

impl Job {
    async fn leave(self) {
        self.task.abort();
        // A left call shows nothing more.
        let _ = self.task.await;
        self.person.leave();
    }
}

fn report(screen: &Screen, name: &str, called: Result<CallFollowResult, HostError>) {
    let call = match called {
        Ok(CallFollowResult::Ended(call)) => call.value,
        Ok(CallFollowResult::LetGo { why, .. }) => {
            return screen.say(&sanitize_line(&format!("{name}: not followed any more ({why})")));
        }
        Err(error) => return screen.say(&sanitize_line(&format!("{name}: {error}"))),
    };
    let mut lines = vec![match verdict(&call) {
        Ok(()) => format!("{name}: done"),
        Err(failure) => sanitize_line(&failure.to_string()),
    }];
    lines.extend(result_lines(&call));
    screen.say(&lines.join("\n"));
}
